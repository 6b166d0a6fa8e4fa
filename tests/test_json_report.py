"""A report that cannot lie by accident."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from made_small_world import LEAK, RESULTS, SENTENCE, TARGET, judged

from rdt_conformance import paths
from rdt_conformance.contract import Applies, Area, Level
from rdt_conformance.environment import environment
from rdt_conformance.report import json_report
from rdt_conformance.report.saving import ReportProblem
from rdt_conformance.results import CheckResult
from rdt_conformance.verdict import Status

pytestmark = pytest.mark.usefixtures("small_world")


RUN = {"seed": 7, "profile": "standard", "engines": ("local",)}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return json_report.write(
        tmp_path / "new" / "folder", json_report.build(judged(RESULTS), TARGET, RESULTS, environment() | RUN)
    )


def test_what_was_written_is_read_and_can_be_judged_again(report: Path) -> None:
    document = json_report.read(report)
    assert list(document) == [
        "header",
        "environment",
        "target",
        "verdict",
        "clauses",
        "checks",
        "benchmarks",
        "deviations",
        "required",
        "faults",
        "alarms",
        "footer",
    ]
    assert document["header"]["suite_version"] == "1.2.3"
    assert document["target"]["facts"] == [
        {"name": "name", "value": "MINE", "learnt_from": "class: tensor_transport_backend()"}
    ]
    assert document["verdict"]["exit_status"] == 1
    assert document["verdict"]["warnings"] == ["G10 SHOULD broken on local: Freeing 4 MB took 3.2 s."]
    by_id = {clause["id"]: clause for clause in document["clauses"]}
    assert by_id["G1"]["sentence"] == SENTENCE
    assert by_id["G1"]["results"] == [
        {"engine": "local", "status": "fail", "reason": LEAK.happened, "checks": ["test_leak"], "hidden_by": []}
    ]
    results = [CheckResult.from_json(check) for check in document["checks"]]
    assert results == RESULTS
    assert judged(results) == judged(RESULTS)


def test_a_report_replaces_an_older_one_and_leaves_nothing_beside_it(report: Path) -> None:
    assert json_report.write(report.parent, json_report.build(judged([]), TARGET, [], environment() | RUN)) == report
    assert json_report.read(report)["checks"] == []
    assert os.listdir(report.parent) == ["report.json"]


def edited(*path: str | int, to: object) -> Callable[[str], str]:
    """A hand that changes one value of a report."""

    def edit(text: str) -> str:
        document = json.loads(text)
        *parents, last = path
        part = document
        for key in parents:
            part = part[key]
        part[last] = to
        return json.dumps(document)

    return edit


def without(section: str) -> Callable[[str], str]:
    return lambda text: json.dumps({key: value for key, value in json.loads(text).items() if key != section})


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text: "", "empty; no run finished writing it"),
        (lambda text: " \n", "empty; no run finished writing it"),
        (lambda text: text[: len(text) // 2], "cut off or damaged at line "),
        (lambda text: "[]", "not a report of rdt-conformance"),
        (lambda text: "{}", "not a report of rdt-conformance"),
        (lambda text: '{"header": 1}', "not a report of rdt-conformance"),
        (edited("header", "format", to="other"), "not a report of rdt-conformance"),
        (edited("header", "version", to=0), "format 0, written by rdt-conformance 1.2.3; this one reads format 3"),
        (edited("header", "version", to=2), "format 2, written by rdt-conformance 1.2.3; this one reads format 3"),
        (without("footer"), "at $: 'footer' is a required property"),
        (edited("footer", "complete", to=False), "at $.footer.complete: True was expected"),
        (edited("footer", "checks", to=3), "edited after the run: it does not match its own footer"),
        (edited("clauses", 1, "results", 0, "status", to="pass"), "edited after the run: "),
        (edited("clauses", 1, "results", 0, "status", to="green"), "at $.clauses[1].results[0].status: 'green' is not"),
        (edited("verdict", "exit_status", to=0), "edited after the run: "),
        (edited("verdict", "headline", to="conformant"), "edited after the run: "),
        (edited("checks", to=[]), "edited after the run: "),
        (lambda text: "[" * 100_000, "not a report of rdt-conformance, it holds what none would"),
        (lambda text: "9" * 100_000, "not a report of rdt-conformance, it holds what none would"),
        (edited("checks", 1, "failures", to=[]), "edited after the run: "),
    ],
)
def test_a_damaged_report_is_never_trusted(report: Path, damage: Callable[[str], str], problem: str) -> None:
    report.write_text(damage(report.read_text()))
    with pytest.raises(ReportProblem) as caught:
        json_report.read(report)
    assert str(caught.value).startswith(f"{report}: {problem}")
    assert "\n" not in str(caught.value)


def test_a_report_cut_off_anywhere_is_never_trusted(report: Path) -> None:
    text = report.read_text().rstrip()
    for length in range(0, len(text), max(1, len(text) // 97)):
        report.write_text(text[:length])
        with pytest.raises(ReportProblem):
            json_report.read(report)


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ReportProblem, match=r"report\.json: cannot be read: No such file or directory$"):
        json_report.read(tmp_path / "report.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReportProblem, match=r"binary: not a report of rdt-conformance, it is not even text$"):
        json_report.read(tmp_path / "binary")


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportProblem, match=r"report\.json: cannot be written: (File exists|Not a directory)$"):
        json_report.write(tmp_path / "file", json_report.build(judged([]), TARGET, [], environment() | RUN))
    (tmp_path / "taken" / "report.json").mkdir(parents=True)
    with pytest.raises(ReportProblem, match=r"report\.json: cannot be written: Is a directory$"):
        json_report.write(tmp_path / "taken", json_report.build(judged([]), TARGET, [], environment() | RUN))
    assert os.listdir(tmp_path / "taken") == ["report.json"]


@pytest.mark.parametrize(
    ("result", "run", "problem"),
    [
        (CheckResult("t", "local", ("S1",), "passed", facts={"x": object()}), RUN, "cannot be told in JSON"),
        (CheckResult("t", "local", ("S1",), "passed", facts={"x": float("nan")}), RUN, "cannot be told in JSON"),
        (CheckResult("t", "local", ("S1",), "passed", seconds=-1), RUN, "break its own schema"),
        (CheckResult("t", "local", ("S1",), "passed"), {}, "break its own schema"),
    ],
)
def test_a_report_that_breaks_its_schema_is_not_written(
    tmp_path: Path, result: CheckResult, run: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ReportProblem, match=f"{problem}.*harness error"):
        json_report.write(tmp_path, json_report.build(judged([]), TARGET, [result], environment() | run))
    assert os.listdir(tmp_path) == []


def test_the_schema_is_one_and_forbids_what_it_does_not_know() -> None:
    schema = json.loads((paths.data_folder("reports") / "schema" / "report-3.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    parts = [schema, *schema["$defs"].values()]
    closed = [part.get("additionalProperties") is False for part in parts if "properties" in part]
    assert closed.count(False) == 1  # the environment may grow


def test_the_schema_knows_the_words_of_the_register() -> None:
    schema = json.loads((paths.data_folder("reports") / "schema" / "report-3.json").read_text())
    clause = schema["$defs"]["clause"]["properties"]
    assert clause["area"]["enum"] == [area.value for area in Area]
    assert clause["level"]["enum"] == [level.value for level in Level]
    assert clause["applies"]["enum"] == [applies.value for applies in Applies]
    assert set(clause["results"]["items"]["properties"]["status"]["enum"]) == {status.value for status in Status}
