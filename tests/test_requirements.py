"""What ``--rdt-require`` demands, and what a run says that does not reach it."""

from __future__ import annotations

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from made_reports import FakeTarget, failing, passing, write

from rdt_conformance import cli
from rdt_conformance.deviations import Deviation, Deviations
from rdt_conformance.ladder import LADDER
from rdt_conformance.options import LEVEL, REQUIREMENTS
from rdt_conformance.requirements import Requirements
from rdt_conformance.results import CheckResult
from rdt_conformance.verdict import Exit, Verdict, judge

ALL_HOLD = passing("local", "cluster", "ray")
G4_BROKEN = [*passing(besides=["G4"]), failing("G4")]
FILLED = CheckResult(
    "test_b",
    "local",
    ("B1",),
    "passed",
    ("B1",),
    facts={"another": ["refused"], "target buffers": ["filled"], "what else": ["refused"]},
)
REFUSED = dataclasses.replace(FILLED, facts={"target buffers": ["filled", "refused"]})


def judged(results: list[CheckResult], *names: str, whole: bool = True, **claims: Any) -> Verdict:
    target = FakeTarget()
    target.capabilities = dataclasses.replace(target.capabilities, **claims)
    can = Requirements(names, target.capabilities)
    return judge(results, target, ("local",), selected_all=whole, required=can)


def test_every_level_can_be_required() -> None:
    assert [name for name in REQUIREMENTS if name.startswith(LEVEL)] == [f"level:{rung.number}" for rung in LADDER]


MET = [
    ("level:3", G4_BROKEN, {}),
    ("level:1", G4_BROKEN, {}),
    ("level:6", ALL_HOLD, {}),
    ("one-sided", [], {}),
    ("two-sided", [], {"one_sided": False}),
    ("abort", [], {}),
    ("own-fetch", [], {}),
    ("cuda", [], {"devices": ("cpu", "cuda")}),
    ("target-buffers", [FILLED], {}),
]
BUFFERS_GO_TO = "Ray hands target buffers only to one-sided transports of torch tensors"
NOT_MET = [
    ("level:4", G4_BROKEN, {}, 'level 3, "keeps order", was reached; in the way of level 4: G4 (broken)'),
    ("level:6", G4_BROKEN, {}, 'level 3, "keeps order", was reached; in the way of level 4: G4 (broken)'),
    ("one-sided", [], {"one_sided": False}, "is_one_sided() says that it is two-sided"),
    ("two-sided", [], {}, "is_one_sided() says that it is one-sided"),
    ("abort", [], {"can_abort": False}, "can_abort_transport() says that it cannot"),
    ("own-fetch", [], {"own_fetch": False}, "it has no fetch_multiple_tensors and wait_fetch_complete of its own"),
    ("own-fetch", [], {"one_sided": False}, "it has no fetch_multiple_tensors and wait_fetch_complete of its own"),
    ("cuda", [], {}, "its devices in this run are cpu"),
    ("target-buffers", [], {}, "none were seen to be filled"),
    ("target-buffers", [REFUSED], {}, "it refused some"),
    ("target-buffers", [FILLED], {"takes_buffers": False}, BUFFERS_GO_TO),
    ("target-buffers", [FILLED], {"one_sided": False}, BUFFERS_GO_TO),
]


@pytest.mark.parametrize(("name", "results", "claims"), MET)
def test_what_is_met_is_not_spoken_of(name: str, results: list[CheckResult], claims: dict[str, Any]) -> None:
    assert judged(results, name, **claims).unmet == ()


@pytest.mark.parametrize(("name", "results", "claims", "why"), NOT_MET)
def test_what_is_not_met_is_one_line_and_fails_the_run(
    name: str, results: list[CheckResult], claims: dict[str, Any], why: str
) -> None:
    verdict = judged(results, name, **claims)
    (said,) = verdict.unmet
    assert said.startswith(f"{name} is required: {why}")
    assert verdict.exit_status is Exit.BROKEN


def test_all_words_are_tried() -> None:
    tried = {name for name, *_ in MET} & {name for name, *_ in NOT_MET}
    assert {name for name in REQUIREMENTS if not name.startswith(LEVEL)} <= tried


def test_a_level_that_is_stepped_over_is_not_reached() -> None:
    (said,) = judged(passing(), "level:5", can_abort=False).unmet
    assert said.startswith('level:5 is required: level 4, "cleans up", was reached')


def test_a_run_of_picked_checks_says_nothing_of_what_it_cannot_tell() -> None:
    assert judged([], "level:6", "target-buffers", whole=False).unmet == ()
    assert len(judged([], "two-sided", whole=False).unmet) == 1


def test_a_crash_of_the_suite_goes_before_a_requirement() -> None:
    crashed = CheckResult("test_x", "local", ("G4",), "error", reason="ZeroDivisionError")
    assert judged([*passing(besides=["G4"]), crashed], "level:4").exit_status is Exit.HARNESS_ERROR


def test_a_listed_deviation_is_in_the_way_and_judge_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = date(2026, 11, 28)
    known = Deviations((Deviation("G4", "all", "we know", "https://example.com", day),), "known.toml", day)
    report = write(tmp_path, G4_BROKEN, deviations=known, required=("level:4", "abort"))
    assert cli.main(["judge", str(report)]) == 1
    said = 'demand not met: level:4 is required: level 3, "keeps order", was reached; in the way of level 4: G4 '
    assert f"{said}(listed as a deviation)" in capsys.readouterr().out
    report = write(tmp_path, G4_BROKEN, deviations=known, required=("level:3", "abort"))
    assert cli.main(["judge", str(report)]) == 0
