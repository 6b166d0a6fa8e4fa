"""The plugin as a user meets it: options, collection, verdict and exit status; and that it keeps out of the way."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from made_suites import ADVICE, BRIEF, BROKEN, CHECKS, CRASH, NO_CACHE, NOT_RUN, TARGET, Run

from rdt_conformance import paths
from rdt_conformance.report.saving import MADE

pytestmark = pytest.mark.usefixtures("not_side_by_side")


# --- out of the way when not asked --------------------------------------------------------------------------------

HEAVY = ("ray", "torch", "numpy", "hypothesis", "rich", "jsonschema", "jinja2", "psutil")


def test_the_plugin_costs_a_project_next_to_nothing() -> None:
    script = f"""
        import argparse, dataclasses, sys, time
        import pytest
        began = time.process_time()
        import rdt_conformance.plugin
        took = time.process_time() - began
        print(took, [name for name in {HEAVY} if name in sys.modules])
    """
    runs = [
        subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    seconds, heavy = zip(*(done.stdout.split(maxsplit=1) for done in runs), strict=True)
    assert {text.strip() for text in heavy} == {"[]"}
    assert min(map(float, seconds)) < 0.010


def test_without_a_transport_nothing_is_imported_or_written(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        f"""
        import sys
        def test_own(request):
            assert not [name for name in {HEAVY} if name in sys.modules]
            assert not request.config.pluginmanager.has_plugin("rdt_conformance_session")
        """
    )
    loaded = ("-p", "rdt_conformance.plugin", *NO_CACHE)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess(*loaded)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("rdt transport*")
    assert not (pytester.path / "rdt-report").exists()


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "no:rdt_conformance", "-p", "no:rdt_conformance.plugin", "--help")
    result.stdout.no_fnmatch_line("*--rdt-transport*")


# --- a name that others use too -----------------------------------------------------------------------------------

THEIRS = """
    import pytest
    def pytest_addoption(parser):
        parser.addoption("--transport", default="none", help="how we talk")
    @pytest.fixture
    def how(request):
        return request.config.getoption("--transport")
"""


@pytest.mark.parametrize("given", [("--transport=carrier-pigeon",), ("--transport", "carrier-pigeon")])
def test_a_project_keeps_its_own_option_of_that_name(
    run: Run, pytester: pytest.Pytester, given: tuple[str, ...]
) -> None:
    pytester.makeconftest(THEIRS)
    pytester.makepyfile("def test_own(how): assert how == 'carrier-pigeon'")
    result = run(*given, transport="")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("rdt transport*")


def test_a_project_with_that_option_is_judged_under_the_long_name(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(THEIRS)
    pytester.makepyfile("def test_own(how): assert False, 'the suites alone are run'")
    result = run(f"--rdt-transport={TARGET}", *BRIEF, "--transport=carrier-pigeon", transport="")
    result.stdout.fnmatch_lines(["rdt transport: *InlineTransport", "*1 passed, 1 deselected*"])


def test_another_plugin_keeps_its_own_option_of_that_name(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(their_plugin=THEIRS, test_own="def test_own(how): assert how == 'smoke'")
    pytester.syspathinsert()
    run("-p", "their_plugin", "--transport=smoke", transport="").assert_outcomes(passed=1)


@pytest.mark.parametrize("given", [("--transport", TARGET), (f"--transport={TARGET}",), ("--rdt-transport", TARGET)])
def test_every_spelling_of_the_option(run: Run, given: tuple[str, ...]) -> None:
    run(*given, *BRIEF, transport="").stdout.fnmatch_lines([f"rdt transport: {TARGET}"])


# --- what is collected ----------------------------------------------------------------------------------------------


def test_the_suites_are_run_and_not_the_users_tests(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own="def test_own(): assert False")
    pytester.mkdir("tests").joinpath("test_more.py").write_text("def test_more(): assert False")
    run().assert_outcomes(passed=1, deselected=1)
    assert not (pytester.path / ".hypothesis").exists()


def test_files_on_the_command_line_are_run_as_pytest_runs_them(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own=textwrap.dedent(CHECKS) + "\ndef test_own(): pass\n")
    result = run("test_own.py")
    result.assert_outcomes(passed=2, deselected=1)
    assert result.ret == 8


HOSTILE_INI = """
    [pytest]
    testpaths = tests
    python_files = check_*.py
    python_functions = check_*
    filterwarnings = error
    addopts = --strict-markers --strict-config
    xfail_strict = true
"""
HOSTILE_CONFTEST = """
    import pytest
    @pytest.fixture
    def rdt():
        raise RuntimeError("not your fixture")
    @pytest.fixture(autouse=True)
    def everywhere():
        yield
    def pytest_collection_modifyitems(items):
        items.reverse()
"""


def test_the_projects_own_settings_do_not_get_in_the_way(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini(HOSTILE_INI)
    pytester.makeconftest(HOSTILE_CONFTEST)
    pytester.mkdir("tests")
    run().assert_outcomes(passed=1, deselected=1)


def test_a_transport_in_the_ini_file_lets_the_project_run_its_own_tests(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini(f"[pytest]\nrdt_transport = {TARGET}")
    pytester.makepyfile(test_own="def test_own(): pass")
    result = run("test_own.py", transport="")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*rdt-conformance verdict*")


# --- verdict and exit status ------------------------------------------------------------------------------------------


def test_a_broken_clause_is_told_in_words_and_fails_the_run(run: Run) -> None:
    result = run(more=BROKEN)
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*the second receiver got nothing*", "*not conformant: 1 MUST clause broken (L2)*"])
    result.stdout.no_fnmatch_line("*examine.py*")


def test_advice_warns_and_fails_nothing(run: Run) -> None:
    result = run("-x", "-v", more=ADVICE)
    assert result.ret == 8  # most clauses are not exercised here
    result.stdout.fnmatch_lines(["*test_advice*WARNED*", "*G3b*it raised*", "*1 passed*1 warned*"])


def test_a_crash_of_a_check_is_our_fault(run: Run) -> None:
    result = run(more=CRASH)
    assert result.ret == 3
    result.stdout.fnmatch_lines(["no verdict: 1 harness error*", "*ZeroDivisionError: our fault*"])


def test_what_was_not_exercised_makes_the_run_inconclusive(run: Run) -> None:
    result = run(more=NOT_RUN)
    assert result.ret == 8
    result.assert_outcomes(passed=1, skipped=1, deselected=1)
    result.stdout.fnmatch_lines(["inconclusive: * not exercised *", "*L4: no room for it here*"])


@pytest.mark.parametrize("narrowing", ["-k=works", "--deselect=x::y", "-m=not slow"])
def test_a_choice_of_checks_earns_no_verdict(run: Run, narrowing: str) -> None:
    result = run(narrowing)
    assert result.ret == 8
    result.stdout.fnmatch_lines(["partial run: * not a verdict on the transport"])


def test_no_check_at_all_is_inconclusive(run: Run) -> None:
    result = run("-k=nothing_is_called_so")
    assert result.ret == 8


def test_a_check_whose_set_up_fails_was_not_run(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture(autouse=True)\ndef everywhere(): raise OSError('no disk')")
    result = run()
    assert result.ret == 8
    result.stdout.fnmatch_lines(["*L1: setup: OSError: no disk"])


def test_a_failure_of_the_users_own_counts_too(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own=textwrap.dedent(CHECKS) + "\ndef test_own(): assert False\n")
    assert run("test_own.py").ret == 1


def test_a_run_that_cannot_be_collected_has_no_verdict(run: Run, suites: Path) -> None:
    (suites / "test_bad.py").write_text("import no_such_module")
    result = run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.no_fnmatch_line("*conformant*")


@pytest.mark.parametrize("idle", ["--collect-only", "--fixtures", "--markers"])
def test_a_run_of_nothing_has_no_verdict(run: Run, pytester: pytest.Pytester, idle: str) -> None:
    result = run(idle)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*rdt-conformance verdict*")
    assert not (pytester.path / "rdt-report").exists()


def test_the_report_holds_the_results(run: Run, pytester: pytest.Pytester) -> None:
    run("--rdt-report=out", "--rdt-seed=5", more=BROKEN)
    report = json.loads((pytester.path / "out" / "report.json").read_text())
    assert report["environment"]["seed"] == 5
    assert report["target"]["spec"] == TARGET
    assert {check["name"]: check["outcome"] for check in report["checks"]} == {
        "test_works": "passed",
        "test_broken": "broken",
    }


def test_a_run_that_ends_early_leaves_no_earlier_report(run: Run, pytester: pytest.Pytester) -> None:
    run("--rdt-report=out")
    out = pytester.path / "out"
    (out / "of-the-user").touch()
    assert {path.name for path in out.iterdir()} == {*MADE, "of-the-user"}
    run("--rdt-report=out", "--collect-only")
    assert {path.name for path in out.iterdir()} == {*MADE, "of-the-user"}
    pytester.makepyfile(ending="import pytest\n\ndef pytest_runtest_call():\n    pytest.exit('over')")
    pytester.syspathinsert()
    assert run("--rdt-report=out", "-p", "ending").ret == pytest.ExitCode.INTERRUPTED
    assert {path.name for path in out.iterdir()} == {"of-the-user"}


def test_a_junit_file_gets_what_it_can_hold(run: Run, pytester: pytest.Pytester) -> None:
    run("--junitxml=junit.xml", more=BROKEN)
    text = (pytester.path / "junit.xml").read_text()
    assert '<property name="rdt_broken" value="L2"' in text
    assert '<property name="rdt"' not in text


def test_results_come_back_from_the_workers_of_xdist(run: Run, pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    listed = BROKEN.replace("L2", "L3").replace("test_broken", "test_listed")
    pytester.makepyfile(test_own=textwrap.dedent(CHECKS) + textwrap.dedent(BROKEN) + textwrap.dedent(listed))
    entry = "[[deviation]]\nclause = 'L3'\nreason = 'known'\nlink = 'https://example.com'\nexpires = 2999-01-01\n"
    (pytester.path / "known.toml").write_text(entry)
    result = run("-n1", "--rdt-deviations=known.toml", "test_own.py")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["partial run: *1 MUST clause broken (L2), 1 listed*", "3 checks, *"])


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "status", "said"),
    [
        ("threading.Thread(target=threading.Event().wait, name='pump').start()", 7, ": pump;"),
        ("pool = concurrent.futures.ThreadPoolExecutor(); pool.submit(print).result()", 0, ""),
    ],
)
def test_forgotten_threads_do_not_keep_the_interpreter_alive(left: str, status: int, said: str) -> None:
    script = f"""
        import concurrent.futures, threading
        from rdt_conformance import leaving
        leaving.GRACE = 0.1
        {left}
        leaving.leave_in_time(7)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=20)
    assert done.returncode == status
    assert said in done.stdout
    assert ("leaving all the same" in done.stdout) == bool(said)


def test_the_data_folders_are_found() -> None:
    assert paths.data_folder("suites").is_dir()
    with pytest.raises(FileNotFoundError, match="not completely installed"):
        paths.data_folder("nothing")
