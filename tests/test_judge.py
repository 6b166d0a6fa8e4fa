"""``rdt-conformance judge``: the verdict comes out of the report again, or it is said that it does not."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_reports import FakeTarget, failing, forge, passing, write
from suite_run import run_suite_forked

from rdt_conformance import cli
from rdt_conformance.contract import CLAUSES
from rdt_conformance.report import json_report, offline
from rdt_conformance.results import CheckResult
from rdt_conformance.verdict import judge

BROKEN = [*passing(besides=["G4", "G10"]), failing("G4"), failing("G10")]
UNKNOWN = [*passing(besides=["A1"]), CheckResult("test_a1", "local", ("A1",), "not run", reason="none in flight")]
CRASHED = [*passing(besides=["A1"]), CheckResult("test_a1", "local", ("A1",), "error", reason="ZeroDivisionError")]


@pytest.mark.parametrize(
    ("results", "status"),
    [(passing(), 0), (BROKEN, 1), (CRASHED, 3), (UNKNOWN, 8), ([], 8)],
    ids=["passing", "broken", "crashed", "unknown", "nothing"],
)
def test_the_verdict_comes_out_again(
    results: list[CheckResult], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = write(tmp_path, results)
    document = json_report.read(report)
    said = f"{document['target']['spec']}, {document['header']['created']}, {document['verdict']['headline']}"
    assert cli.main(["judge", str(report)]) == status
    assert capsys.readouterr().out.splitlines() == [
        f"{report}: {said}",
        f"{report}: agrees, judged again from {len(results)} checks on {len(CLAUSES)} clauses",
    ]


def test_everything_that_the_verdict_holds_comes_out_again(tmp_path: Path) -> None:
    results = [*BROKEN, *passing("ray")]
    report = write(tmp_path, results, "local", "ray", selected_all=False)
    again = offline.judge(json_report.read(report))
    assert again == judge(results, FakeTarget(), ("local", "ray"), selected_all=False)


def test_seconds_may_have_been_added_in_another_order_and_no_more(tmp_path: Path) -> None:
    results = [dataclasses.replace(each, seconds=(0.1, 0.2, 0.3)[index % 3]) for index, each in enumerate(passing())]
    there, back = (judge(each, FakeTarget(), ("local",), selected_all=True) for each in (results, results[::-1]))
    assert there.counts == back.counts
    document = json_report.read(write(tmp_path, results))
    for times, agrees in ((1 + 1e-12, True), (1 + 1e-7, False)):
        counts = {**document["verdict"]["counts"], "seconds": document["verdict"]["counts"]["seconds"] * times}
        changed = {**document, "verdict": {**document["verdict"], "counts": counts}}
        assert (offline.differences(changed, offline.judge(changed)) == []) == agrees


def test_a_report_is_judged_by_the_clauses_it_was_written_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = write(tmp_path, BROKEN)
    monkeypatch.setitem(CLAUSES, "G4", dataclasses.replace(CLAUSES["G4"], level=CLAUSES["G10"].level))
    monkeypatch.delitem(CLAUSES, "D1")
    assert cli.main(["judge", str(report)]) == 1


def _pass_everywhere(document: dict[str, Any]) -> None:
    for clause in document["clauses"]:
        for result in clause["results"]:
            result.update(status="pass", reason="")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda d: d["verdict"].update(exit_status=0), "exit_status: the report says 0, its checks say 1"),
        (lambda d: d["verdict"].update(headline="conformant"), "headline: the report says conformant, its checks say "),
        (_pass_everywhere, "G4 on local: the report says {'status': 'pass', "),
        (lambda d: d["target"]["capabilities"].update(can_abort=False), "A1 on local: the report says {'status': "),
        (lambda d: d["checks"].pop(), "warnings: the report says ['G10 SHOULD broken on local: "),
    ],
)
def test_a_forged_report_is_found_out(
    change: Callable[[dict[str, Any]], object], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = write(tmp_path, BROKEN)
    forge(report, change)
    status = cli.main(["judge", str(report)])
    printed = capsys.readouterr().out
    assert status == 3
    assert f"{report}: does not agree with its own checks; written by " in printed
    assert f"\n  {line}" in printed


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "empty; no run finished writing it"),
        ("{}", "not a report of rdt-conformance"),
        ("<!doctype html>\n<html>", "the page of a report; name the report.json beside it"),
        ("GIF89a", "cut off or damaged at line 1; run the suite again"),
        ('{"header": {"format": "rdt-conformance-report", "version": 0}}', "format 0, written by rdt-conformance "),
    ],
)
def test_a_file_that_is_no_report_is_one_clear_line(
    content: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "bad.json", write(tmp_path, passing())
    bad.write_text(content)
    assert cli.main(["judge", str(bad), str(good)]) == 4
    said = capsys.readouterr()
    assert said.err.startswith(f"{bad}: {problem}")
    assert said.err.count("\n") == 1
    assert f"{good}: agrees" in said.out


def test_the_worst_of_several_decides(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / str(number), results)) for number, results in enumerate((passing(), UNKNOWN, BROKEN))]
    assert cli.main(["judge", *paths]) == 1
    assert cli.main(["judge", *paths[:2]]) == 8
    assert cli.main(["judge", paths[0]]) == 0


def test_a_real_run_is_judged_again_without_what_it_ran_on(tmp_path: Path) -> None:
    target = "reference_transports.faulty.gc:FreesByDescriptor"
    run = run_suite_forked(tmp_path, target, "--rdt-profile=quick", "--rdt-seed=1", "--rdt-engine=local", "-k", "free")
    (failure,) = (failure for check in run.report["checks"] for failure in check["failures"])
    assert failure["history"]
    code = (
        "import sys; from rdt_conformance import cli; status = cli.main(sys.argv[1:]);"
        "assert not {'ray', 'torch', 'numpy', 'pytest', 'jinja2'} & set(sys.modules), sys.modules; sys.exit(status)"
    )
    again = subprocess.run(
        [sys.executable, "-c", code, "judge", str(tmp_path / "report" / "report.json")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert again.returncode == 1, again
    assert "agrees, judged again from" in again.stdout
