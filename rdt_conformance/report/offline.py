"""Judges again what lies in a report, without its transport, Ray or torch, and compares it with what the run said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rdt_conformance import contract, verdict as judging
from rdt_conformance.capabilities import Capabilities
from rdt_conformance.contract_types import Applies, Area, Clause, Level
from rdt_conformance.deviations import Deviations
from rdt_conformance.report.json_report import clauses_json, verdict_json
from rdt_conformance.requirements import Requirements
from rdt_conformance.results import CheckResult
from rdt_conformance.verdict import Verdict


def judge(document: Mapping[str, Any]) -> Verdict:
    """The verdict on what the checks found, by the rules of this version and the clauses of the report.

    Args:
        document: what `rdt_conformance.report.json_report.read` returned.
    """
    capabilities = Capabilities.from_json(document["target"]["capabilities"])
    listed = document["deviations"]
    return judging.judge(
        [CheckResult.from_json(check) for check in document["checks"]],
        capabilities,
        document["verdict"]["engines"],
        selected_all=not document["verdict"]["partial"],
        register=contract.register(map(_clause, document["clauses"])),
        deviations=Deviations.from_json(listed) if listed else None,
        required=Requirements(tuple(document["required"]), capabilities),
    )


def differences(document: Mapping[str, Any], verdict: Verdict) -> list[str]:
    """Where a report says something else than `verdict`, one line each; none if they agree."""
    said, found = document["verdict"], verdict_json(verdict)
    return [
        *(_line(key, said[key], value) for key, value in found.items() if not _same(said[key], value)),
        *_differing_clauses(document["clauses"], clauses_json(verdict)),
    ]


def _same(said: Any, found: Any) -> bool:
    """Whether they are equal, but for the last digits of a sum: that of seconds was once taken in another order."""
    if isinstance(found, float):
        return isinstance(said, float | int) and math.isclose(said, found, rel_tol=1e-9)
    if isinstance(found, Mapping) and isinstance(said, Mapping):
        return said.keys() == found.keys() and all(_same(said[key], value) for key, value in found.items())
    return said == found


def _differing_clauses(said: list[dict[str, Any]], found: list[dict[str, Any]]) -> Iterator[str]:
    results = {clause["id"]: clause["results"] for clause in said}
    for clause in found:
        by_engine = {result["engine"]: result for result in results[clause["id"]]}
        for result in clause["results"]:
            before = by_engine.get(result["engine"])
            if before != result:
                parts = [key for key in result if before is None or before[key] != result[key]]
                was = {key: before[key] for key in parts} if before else None
                yield _line(f"{clause['id']} on {result['engine']}", was, {key: result[key] for key in parts})


def _line(what: str, said: object, found: object) -> str:
    return f"{what}: the report says {_short(said)}, its checks say {_short(found)}"


def _short(value: object, limit: int = 160) -> str:
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _clause(data: Mapping[str, Any]) -> Clause:
    fields = {key: value for key, value in data.items() if key != "results"}
    return Clause(
        **{
            **fields,
            "area": Area(data["area"]),
            "level": Level(data["level"]),
            "applies": Applies(data["applies"]),
            "engines": frozenset(data["engines"]),
        }
    )
