"""The file of known deviations: how it is read, what it changes about a verdict, and how its entries grow old."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path

import pytest
from made_reports import FakeTarget, failing, forge, passing, write
from made_suites import BROKEN, Run

from rdt_conformance import cli, contract
from rdt_conformance.contract import CLAUSES
from rdt_conformance.deviations import ALL, Deviation, Deviations, DeviationsProblem, read
from rdt_conformance.report import badge, folder, json_report
from rdt_conformance.results import CheckResult
from rdt_conformance.verdict import Exit, Status, Verdict, judge

pytestmark = pytest.mark.usefixtures("not_side_by_side")

TODAY = date(2026, 11, 28)


def listed(clause: str, engine: str = ALL, expires: date = TODAY) -> Deviation:
    return Deviation(clause, engine, "we know", "https://example.com/1", expires)


def listing(*entries: Deviation) -> Deviations:
    return Deviations(entries, "known.toml", TODAY)


# --- reading --------------------------------------------------------------------------------------------------------

GOOD = {"clause": '"G1"', "reason": '"we know"', "link": '"https://example.com/1"', "expires": "2026-11-28"}


def entry(**changes: str) -> str:
    told = {key: value for key, value in (GOOD | changes).items() if value}
    return "[[deviation]]\n" + "".join(f"{key} = {value}\n" for key, value in told.items())


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(entry() + "\n" + entry(clause='"D1"', engine='"ray"'))
    assert read(path, "known.toml", TODAY) == listing(listed("G1"), listed("D1", "ray"))
    path.write_text(entry(clause='"D1"') + entry(engine='"local"') + entry(engine='"ray"'))
    assert read(path, "known.toml", TODAY) == listing(listed("D1"), listed("G1", "local"), listed("G1", "ray"))
    path.write_text("# nothing is wrong at the moment\n")
    assert read(path, "known.toml", TODAY) == listing()


WRONG = {
    entry(clause=""): "entry 1: clause is missing",
    entry(reason=""): "entry 1 (G1): reason is missing",
    entry(reason='"  "'): "entry 1 (G1): reason is empty",
    entry(link=""): "entry 1 (G1): link is missing",
    entry(expires=""): "entry 1 (G1): expires is missing",
    entry(
        expires='"2026-11-28"'
    ): "entry 1 (G1): expires is '2026-11-28', not a date such as 2027-01-31, without quotes",
    entry(expires="2026-11-28T10:00:00"): "entry 1 (G1): expires is 2026-11-28T10:00:00, not a date such as ",
    entry(clause="1"): "entry 1: clause is 1, not text in quotes",
    entry(engine='["ray"]'): "entry 1 (G1): engine is ['ray'], not text in quotes",
    entry()
    + entry(clause='"D1"', until="2026-11-28"): "entry 2 (D1): 'until' is not known; choose from clause, engine, ",
    entry(clause='"g1"'): "entry 1 (g1): no clause has the id 'g1'; did you mean G1",
    entry(clause='"G*"'): "entry 1 (G*): no clause has the id 'G*'; ",
    entry(engine='"warp"'): "entry 1 (G1): no engine is called 'warp'; choose from all, cluster, local, ray",
    entry(clause='"D5r"'): "entry 1 (D5r): this clause has no right or wrong, so there is nothing to deviate from",
    entry(clause='"R1"', engine='"local"'): "entry 1 (R1): this clause is not tested on local, only on cluster and ray",
    entry() + entry(engine='"ray"'): "G1 is listed twice for the same engine",
    entry() + entry(): "G1 is listed twice for the same engine",
    entry(engine='"ray"') + entry(engine='"ray"'): "G1 is listed twice for the same engine",
    "[deviation]\nclause = 'G1'": "an entry begins with [[deviation]]",
    "deviation = [1]": "an entry begins with [[deviation]]",
    "[[deviations]]\nclause = 'G1'": "'deviations' is not known; an entry begins with [[deviation]]",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_file_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(DeviationsProblem) as caught:
        read(path, "known.toml", TODAY)
    assert str(caught.value).startswith(f"known.toml: {WRONG[text]}")
    assert "\n" not in str(caught.value)


def test_a_clause_that_is_never_tested_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLAUSES, "G1", dataclasses.replace(CLAUSES["G1"], untested="it takes a second machine"))
    (tmp_path / "known.toml").write_text(entry())
    with pytest.raises(DeviationsProblem, match=r"this clause is never found broken: it takes a second machine$"):
        read(tmp_path / "known.toml", "known.toml", TODAY)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[[deviation]]\nclause = \n", "known.toml is not TOML: "),
        (b"\xff\xfe", "known.toml is not text in UTF-8"),
        (None, "known.toml cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_none_is_one_line(content: bytes | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "known.toml").write_bytes(content)
    with pytest.raises(DeviationsProblem) as caught:
        read(tmp_path / "known.toml", "known.toml", TODAY)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


# --- what it changes about a verdict --------------------------------------------------------------------------------


def judged(
    results: list[CheckResult], *entries: Deviation, engines: tuple[str, ...] = ("local",), whole: bool = True
) -> Verdict:
    return judge(results, FakeTarget(), engines, selected_all=whole, deviations=listing(*entries))


G4_BROKEN = [*passing(besides=["G4"]), failing("G4")]


def test_a_listed_clause_does_not_fail_the_run_and_is_no_pass() -> None:
    verdict = judged(G4_BROKEN, listed("G4"))
    assert (verdict.exit_status, verdict.unmet) == (Exit.CONFORMANT, ())
    assert verdict.headline.startswith("conformant with deviations: 1 listed deviation (G4); every other MUST clause ")
    assert [(r.clause.id, r.status) for r in verdict.deviations] == [("G4", Status.DEVIATION)]
    assert verdict.level is not None and verdict.level.name == "keeps order"
    assert [(obstacle.clause, obstacle.why) for obstacle in verdict.next_blocked_by] == [
        ("G4", "listed as a deviation")
    ]


def test_a_listed_should_clause_is_no_warning() -> None:
    verdict = judged([*passing(besides=["G10"]), failing("G10")], listed("G10"))
    assert (verdict.exit_status, verdict.warnings, len(verdict.deviations)) == (Exit.CONFORMANT, (), 1)


@pytest.mark.parametrize(
    ("entries", "headline"),
    [
        ([listed("G4", "ray")], "not conformant: 1 MUST clause broken (G4)"),
        ([listed("G4", expires=date(2026, 11, 27))], "not conformant: 1 MUST clause broken (G4)"),
        ([], "not conformant: 1 MUST clause broken (G4)"),
    ],
)
def test_what_is_not_listed_here_and_now_is_broken(entries: list[Deviation], headline: str) -> None:
    verdict = judged(G4_BROKEN, *entries)
    assert (verdict.exit_status, verdict.headline) == (Exit.BROKEN, headline)


def test_what_else_is_broken_fails_the_run() -> None:
    verdict = judged([*G4_BROKEN, failing("D1")], listed("G4"))
    assert verdict.exit_status is Exit.BROKEN
    assert verdict.headline == "not conformant: 1 MUST clause broken (D1), 1 listed deviation (G4)"


def behind_g4(outcome: CheckResult) -> list[CheckResult]:
    return [*passing(besides=["G4", "G5"]), outcome]


def test_what_a_listed_deviation_hides_is_named_and_is_not_inconclusive() -> None:
    ended = dataclasses.replace(failing("G4"), clauses=("G4", "G5"), seen=("G4",))
    verdict = judged(behind_g4(ended), listed("G4"))
    (hidden,) = verdict.by_clause()["G5"]
    assert (verdict.exit_status, hidden.status, hidden.hidden_by) == (Exit.CONFORMANT, Status.UNKNOWN, ("G4",))
    assert {o.clause: o.why for o in verdict.next_blocked_by} == {
        "G4": "listed as a deviation",
        "G5": "hidden by a listed deviation",
    }


@pytest.mark.parametrize(
    "reason",
    [
        CheckResult("test_x", "local", ("G5",), "not run", reason="no room"),
        CheckResult("test_x", "local", ("G5",), "passed", ()),
        dataclasses.replace(failing("G2"), clauses=("G2", "G5"), seen=("G2",)),
    ],
)
def test_what_is_unknown_for_another_reason_too_is_not_hidden(reason: CheckResult) -> None:
    ended = dataclasses.replace(failing("G4"), clauses=("G4", "G5"), seen=("G4",))
    verdict = judged([*behind_g4(ended), reason], listed("G4"))
    assert verdict.by_clause()["G5"][0].open
    assert verdict.exit_status is not Exit.CONFORMANT


# --- entries grow old -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([listed("D1", expires=date(2026, 11, 27))], "D1 was accepted until 2026-11-27; mend it, or give it a new day"),
        (
            [listed("R1", "ray", date(2026, 1, 1))],
            "R1 on ray was accepted until 2026-01-01; mend it, or give it a new day",
        ),
        ([listed("D1", "local")], "D1 on local holds again on local; delete the entry"),
        ([listed("D1")], "D1 holds again on local; delete the entry, or name the engine where it does not"),
    ],
)
def test_an_entry_that_is_no_longer_true_fails_the_run(entries: list[Deviation], said: str) -> None:
    verdict = judged(passing(), *entries)
    assert verdict.unmet == (f"known.toml: {said}",)
    assert (verdict.exit_status, verdict.headline) == (
        Exit.BROKEN,
        f"demand not met: known.toml: {said}; otherwise conformant",
    )


def test_an_entry_that_cannot_match_this_transport_fails_the_run() -> None:
    (said,) = judged(passing(), listed("A11")).unmet
    assert said == "known.toml: A11 is only for transports that cannot abort, which this is not; delete the entry"


@pytest.mark.parametrize(
    ("entry", "whole"),
    [
        pytest.param(listed("D1", "ray"), True, id="an engine that was not run"),
        pytest.param(listed("R1"), True, id="a clause that needs an engine that was not run"),
        pytest.param(listed("R8"), True, id="a situation that was not asked for"),
        pytest.param(listed("D1"), False, id="a run of picked checks"),
    ],
)
def test_an_entry_that_this_run_says_nothing_of_is_left_alone(entry: Deviation, whole: bool) -> None:
    verdict = judged(passing(), entry, whole=whole)
    assert verdict.unmet == ()
    assert verdict.exit_status is (Exit.CONFORMANT if whole else Exit.INCONCLUSIVE)


def test_holding_on_one_engine_is_not_holding_again() -> None:
    both = [*passing("local", "ray", besides=["D1"]), *passing()[:1], failing("D1", "ray")]
    both.append(next(result for result in passing() if result.clauses == ("D1",)))
    verdict = judged(both, listed("D1"), engines=("local", "ray"))
    assert (verdict.exit_status, verdict.unmet) == (Exit.CONFORMANT, ())


def test_a_crash_of_the_suite_goes_before_an_old_entry() -> None:
    crashed = CheckResult("test_x", "local", ("G4",), "error", reason="ZeroDivisionError")
    assert judged([*passing(), crashed], listed("D1")).exit_status is Exit.HARNESS_ERROR


# --- where it is shown ----------------------------------------------------------------------------------------------


def test_the_report_alone_is_enough_to_judge_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = write(tmp_path, G4_BROKEN, deviations=listing(listed("G4"), listed("D1")))
    assert cli.main(["judge", str(report)]) == 1
    assert "demand not met: known.toml: D1 holds again" in capsys.readouterr().out
    report = write(tmp_path, G4_BROKEN, deviations=listing(listed("G4")))
    assert cli.main(["judge", str(report)]) == 0
    forge(report, lambda document: document["deviations"].update(entries=[]))
    assert cli.main(["judge", str(report)]) == 3


def test_a_report_with_deviations_never_looks_like_one_without(tmp_path: Path) -> None:
    ended = dataclasses.replace(failing("G4"), clauses=("G4", "G5"), seen=("G4",))
    report = write(tmp_path, behind_g4(ended), deviations=listing(listed("G4")))
    document = json_report.read(report)
    assert [entry["clause"] for entry in document["verdict"]["deviations"]] == ["G4"]
    folder.write_pages(tmp_path, document)
    assert badge.message(document) == "conformant with deviations, level 3"
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("## ≈ Conformant with deviations: ")
    assert (
        "### ≈ Deviations, listed and accepted\n\n- **G4** MUST broken on local: The destination received " in summary
    )
    assert "Accepted until 2026-11-28: we know (https://example.com/1)" in summary
    page = (tmp_path / "report.html").read_text()
    assert "Deviations, listed apart" in page
    assert "hidden by a deviation" in page


def test_a_demand_that_is_not_met_is_not_called_a_broken_clause(tmp_path: Path) -> None:
    document = json_report.read(write(tmp_path, passing(), deviations=listing(listed("D1"))))
    folder.write_pages(tmp_path, document)
    assert badge.message(document).startswith("demand not met, level ")
    assert "### Demands not met\n\n- known.toml: D1 holds again" in (tmp_path / "summary.md").read_text()
    assert 'id="unmet"' in (tmp_path / "report.html").read_text()


# --- runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_clauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contract of two clauses, both of which the checks of `made_suites` cover."""
    monkeypatch.setattr(contract, "CLAUSES", {name: CLAUSES[name] for name in ("L1", "L2", "A1")})


def a_file(pytester: pytest.Pytester, clause: str, expires: str = "2999-01-01") -> Path:
    path = pytester.path / "known.toml"
    path.write_text(entry(clause=f'"{clause}"', expires=expires))
    return path


@pytest.mark.usefixtures("two_clauses")
def test_a_run_with_a_listed_deviation_is_green_and_shows_it(run: Run, pytester: pytest.Pytester) -> None:
    a_file(pytester, "L2")
    result = run("-x", "-rx", "--rdt-deviations=known.toml", "--junitxml=junit.xml", "--rdt-report=out", more=BROKEN)
    assert result.ret == 0
    result.assert_outcomes(passed=1, xfailed=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "rdt demands: known.toml lists 1 deviation",
            "conformant with deviations: 1 listed deviation (L2); every other MUST clause",
            "deviations, listed and accepted:",
            "   L2 MUST broken: the second receiver got nothing",
            "      until 2999-01-01: we know (https://example.com/1)",
            "XFAIL *test_broken* - listed deviation: L2: we know",
        ]
    )
    suite = ET.parse(pytester.path / "junit.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    properties = {entry.get("name"): entry.get("value") for entry in suite.iter("property")}
    assert properties["rdt_deviations"] == "L2"
    assert properties["rdt_deviation"] == "L2 on local until 2999-01-01: we know"
    report = json.loads((pytester.path / "out" / "report.json").read_text())
    assert report["deviations"]["file"] == "known.toml"
    assert cli.main(["judge", str(pytester.path / "out" / "report.json")]) == 0


@pytest.mark.usefixtures("two_clauses")
def test_a_run_with_an_old_entry_is_red(run: Run, pytester: pytest.Pytester) -> None:
    a_file(pytester, "L2", "2026-01-01")
    result = run("--rdt-deviations=known.toml", more=BROKEN)
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.fnmatch_lines(["demands that are not met:", "   known.toml: L2 was accepted until 2026-01-01; *"])
    a_file(pytester, "A1")
    result = run("--rdt-deviations=known.toml")
    result.stdout.fnmatch_lines(["   known.toml: A1 is only for transports that can abort, which this is not;"])
    assert result.ret == 1


def test_the_ini_file_names_one_from_where_it_lies(run: Run, pytester: pytest.Pytester) -> None:
    a_file(pytester, "G99")
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nrdt_deviations = "known.toml"')
    (pytester.path / "below").mkdir()
    pytester.chdir()
    pytester._monkeypatch.chdir(pytester.path / "below")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "ERROR: --rdt-deviations: ../known.toml: entry 1 (G99): no clause has the id 'G99'; *"
    result.stderr.fnmatch_lines([said])


def test_a_bad_file_ends_the_run_before_it_begins(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "known.toml").write_text("[[deviation]]\n")
    result = run("--rdt-deviations=known.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.stderr.lines if line] == [
        "ERROR: --rdt-deviations: known.toml: entry 1: clause is missing"
    ]
