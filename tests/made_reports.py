"""Reports for tests: made of results that are written down here, so that no transport runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from rdt_conformance import contract
from rdt_conformance.bench.results import CellResult
from rdt_conformance.capabilities import Capabilities
from rdt_conformance.deviations import Deviations
from rdt_conformance.environment import environment
from rdt_conformance.report import json_report
from rdt_conformance.requirements import Requirements
from rdt_conformance.results import CheckResult, Failure, Step, Twin
from rdt_conformance.target import Target, ToldFact
from rdt_conformance.verdict import judge

RUN = {"seed": 7, "profile": "quick", "engines": ("local",)}


class FakeTarget:
    """A one-sided transport that can abort, without a class behind it."""

    def __init__(self, spec: str = "mine:Mine", **facts: str) -> None:
        self.spec = spec
        self.capabilities = Capabilities(
            one_sided=True, can_abort=True, own_fetch=True, takes_buffers=True, devices=("cpu",), nodes=1
        )
        self.facts = (
            ToldFact("name", "MINE", "class: tensor_transport_backend()"),
            ToldFact("kind", "one-sided", "class: is_one_sided()"),
            *(ToldFact(name, value, "profile") for name, value in facts.items()),
        )

    def applies(self, clause: contract.Clause, /) -> bool:
        """As its capabilities say."""
        return self.capabilities.applies(clause)


def passing(*engines: str, besides: Sequence[str] = ()) -> list[CheckResult]:
    """One passed check for each clause with a check, except those named."""
    return [
        CheckResult(
            f"test_{clause.id.lower()}",
            engine,
            (clause.id,),
            "passed",
            (clause.id,),
            examples=10,
            transfers=30,
            seconds=0.5,
        )
        for engine in engines or ("local",)
        for clause in contract.CLAUSES.values()
        if clause.id not in besides and not clause.untested and engine in clause.engines
    ]


STEPS = (
    Step(1, 0.0, "source", "main", "task produce", ended=0.0041, outcome="returned"),
    Step(2, 0.0012, "source", "main", "extract_tensor_transport_metadata", "obj1", 0.0031, "1 tensor"),
    Step(3, 0.0038, "driver", "main", "get_communicator_metadata", "obj1", 0.0039, "ok"),
    Step(4, 0.0042, "sink", "_ray_system", "recv_multiple_tensors", "obj1", 0.031, "raised KeyError: 'obj1'"),
    Step(5, 0.0050, "source", "_ray_system", "garbage_collect", "obj1", 0.006, "ok"),
    Step(6, 0.0065, "sink", "main", "wait_fetch_complete", "obj2"),
)


def failing(clause: str, engine: str = "local", **changes: Any) -> CheckResult:
    """A check that found one clause broken."""
    told: dict[str, Any] = {
        "happened": "The destination received other bytes than the source had.",
        "example": ("payload = 1 tensor: int8 (3,)", "receivers = 2"),
        "history": STEPS,
        "error": "File \"mine.py\", line 12, in recv_multiple_tensors\n    del self._objects[obj_id]\nKeyError: 'obj1'",
        "replay": f"pytest --transport=mine:Mine --rdt-engine={engine} --rdt-profile=quick --rdt-seed=7 -k test_broken",
        "twin": Twin(("payload = 1 tensor: int8 (3,)", "receivers = 1"), STEPS[:4]),
    }
    failure = Failure(clause, **(told | changes))
    level = contract.clause(clause).level
    outcome = "broken" if level is contract.Level.MUST else "passed"
    return CheckResult(
        f"test_{clause.lower()}",
        engine,
        (clause,),
        outcome,
        (clause,),
        (failure,),
        examples=3,
        transfers=4,
        seconds=0.2,
    )


def write(
    folder: Path,
    results: Sequence[CheckResult],
    *engines: str,
    target: FakeTarget | None = None,
    selected_all: bool = True,
    deviations: Deviations | None = None,
    required: tuple[str, ...] = (),
    benchmarks: Sequence[CellResult] = (),
) -> Path:
    """Write ``report.json`` for these results into a folder."""
    target = target or FakeTarget()
    run_on = engines or ("local",)
    asked = Requirements(required, target.capabilities)
    verdict = judge(results, target, run_on, selected_all=selected_all, deviations=deviations, required=asked)
    described, where = cast(Target, target), environment() | RUN | {"engines": run_on}
    cells = [cell.to_json() for cell in benchmarks]
    document = json_report.build(verdict, described, results, where, cells, deviations, required)
    return json_report.write(folder, document)


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a report and let its footer say that nothing was changed."""
    document = json.loads(path.read_text())
    change(document)
    del document["footer"]
    document["footer"] = json_report.footer(document)
    path.write_text(json.dumps(document))
