"""Picking checks, and pytest's own options and plugins beside the suite."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from made_suites import BRIEF, BROKEN, CHECKS, LOADED, TARGET, Run

from rdt_conformance import contract
from rdt_conformance.contract import CLAUSES
from rdt_conformance.report import json_report

pytestmark = pytest.mark.usefixtures("not_side_by_side")

SECOND = """
    @check("L3", "L2")
    def test_of_two(case: Case) -> None:
        case.actors(1)
"""


# --- by clause ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "ran"), [("L1", "works"), ("L2", "of_two"), ("l3,L1", "works|of_two")])
def test_checks_are_picked_by_clause(run: Run, asked: str, ran: str) -> None:
    result = run(f"--rdt-clause={asked}", "-v", more=SECOND)
    count = ran.count("|") + 1
    result.assert_outcomes(passed=count, deselected=3 - count)
    for name in ran.split("|"):
        result.stdout.fnmatch_lines([f"*test_{name}*PASSED*"])
    assert result.ret == 8
    result.stdout.fnmatch_lines(["partial run: * not a verdict on the transport"])


NOTHING = {
    "L9x": "no clause has the id 'L9x'; did you mean *",
    "l0": "no clause has the id 'l0'; did you mean *",
    ",": "',' names no clause; --rdt-clauses lists them all",
    "L1,A1": "A1 is only for transports that can abort, which this is not",
    "R2": "R2 needs the cluster or ray engine; see --rdt-engine",
}


@pytest.mark.parametrize("asked", NOTHING)
def test_a_clause_of_which_nothing_can_be_run_is_one_line(run: Run, asked: str) -> None:
    result = run(f"--rdt-clause={asked}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --rdt-clause: {NOTHING[asked]}"])
    assert "Traceback" not in result.stderr.str()


LATE = """
    import warnings
    import pytest

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call():  # threads of the reference may still be at work when an example is over
        yield
        warnings.warn("object 1f goes back to actor1, which made it, as well as to others")
        warnings.warn("of the transport's own")
"""


def test_what_a_check_does_knowingly_warns_nobody(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(late=LATE)
    pytester.syspathinsert()
    result = run("-p", "late")
    result.assert_outcomes(passed=1, deselected=1, warnings=1)
    result.stdout.fnmatch_lines(["*UserWarning: of the transport's own"])
    result.stdout.no_fnmatch_line("*goes back to*")


THREAD = """
    @check("L3")
    def test_with_a_thread(case: Case) -> None:
        import threading
        thread = threading.Thread(target=lambda: [][0])
        thread.start()
        thread.join()
"""


def test_threads_that_end_in_an_error_do_not_bury_the_verdict(run: Run) -> None:
    """A server that loses its connections has hundreds; where one matters, the failure tells its last words."""
    result = run("--rdt-clause=L3", more=THREAD)
    result.assert_outcomes(passed=1, deselected=2, warnings=0)
    result.stdout.no_fnmatch_line("*IndexError*")


# --- pytest's own options -------------------------------------------------------------------------------------------


def test_minus_x_stops_at_the_first_failure_and_earns_no_verdict(run: Run) -> None:
    result = run("-x", more=BROKEN + BROKEN.replace("test_broken", "test_more").replace("L2", "L3"))
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.fnmatch_lines(["partial run: *1 MUST clause broken (L2)"])


def test_minus_k_and_minus_m_pick_checks(run: Run, suites: Path) -> None:
    run("-k", "works or two", more=SECOND).assert_outcomes(passed=2, deselected=1)
    marked = SECOND.replace('@check("L3"', '@pytest.mark.timeout(60)\n    @check("L3"')
    run("-m", "timeout", more=marked).assert_outcomes(passed=1, deselected=2)


def test_a_run_that_selects_nothing_says_so_and_leaves_the_last_report(run: Run, pytester: pytest.Pytester) -> None:
    run("--rdt-report=out")
    result = run("-k", "nonsense", "--rdt-report=out")
    assert result.ret == 8
    result.stdout.fnmatch_lines(["partial run: no check was selected; not a verdict on the transport"])
    result.stdout.no_fnmatch_line("*not selected*")
    report = json_report.read(pytester.path / "out" / "report.json")
    assert report["checks"], "that of the run before"


FIRST_USE = """
    @check("L12")
    def test_first_use(case: Case) -> None:
        case.actors(1)
"""


def test_processes_are_kept_for_as_long_as_nothing_has_to_end_them(run: Run) -> None:
    """They take seconds to start. Where there are none, the order is that of the file."""
    options = ("-p", "no:randomly", "--collect-only", "-q", "--rdt-engine=local,cluster")
    lines = run(*options, more=FIRST_USE + SECOND).stdout.lines
    names = [line.partition("::test_")[2] for line in lines if "::" in line]
    assert names[:3] == ["works[local]", "first_use[local]", "of_two[local]"]
    assert names[3:] == ["works[cluster]", "of_two[cluster]", "first_use[cluster]"]


def test_collect_only_shows_what_would_run(run: Run) -> None:
    result = run("--collect-only", "-q", "--rdt-clause=L3", more=SECOND)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["suites/test_shipped.py::test_of_two[[]local[]]", "1/3 tests collected (2 deselected)*"]
    )


def last_failed(pytester: pytest.Pytester, suites: Path, more: str) -> pytest.RunResult:
    """A run with pytest's cache, which remembers what failed."""
    (suites / "test_shipped.py").write_text(textwrap.dedent(CHECKS + more))
    return pytester.runpytest_inprocess(*LOADED, f"--transport={TARGET}", *BRIEF, "--lf")


def test_lf_runs_what_failed_last_time(
    run: Run, pytester: pytest.Pytester, suites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "CLAUSES", {name: CLAUSES[name] for name in ("L1", "L2", "A1")})
    whole = last_failed(pytester, suites, BROKEN)
    whole.assert_outcomes(passed=1, failed=1, deselected=1)
    whole.stdout.fnmatch_lines(["not conformant: 1 MUST clause broken (L2)"])
    mended = BROKEN.replace("False", "True")
    again = last_failed(pytester, suites, mended)
    again.assert_outcomes(passed=1, deselected=2)
    assert again.ret == 8
    again.stdout.fnmatch_lines(["partial run: *"])
    assert last_failed(pytester, suites, mended).ret == 0, "nothing failed, so that all of them are run"


def test_what_others_rest_on_comes_first(run: Run) -> None:
    freeing, static = (FIRST_USE.replace("L12", each).replace("first_use", each.lower()) for each in ("G2", "S8"))
    lines = run("-p", "no:randomly", "--collect-only", "-q", more=freeing + SECOND + static).stdout.lines
    names = [line.partition("::test_")[2].partition("[")[0] for line in lines if "::" in line]
    assert names == ["s8", "works", "of_two", "g2"]


SHUFFLES = """
    import pytest
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(items):
        items[:] = items[::2] + items[1::2]
"""


def test_another_plugin_may_change_the_order_but_engines_stay_together(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shuffler=SHUFFLES)
    pytester.syspathinsert()
    options = ("-p", "shuffler", "-p", "no:randomly", "--collect-only", "-q", "--rdt-engine=local,cluster")
    lines = run(*options, more=SECOND + SECOND.replace("test_of_two", "test_last")).stdout.lines
    engines = [line.partition("[")[2] for line in lines if "::" in line]
    assert engines == ["local]"] * 3 + ["cluster]"] * 3
