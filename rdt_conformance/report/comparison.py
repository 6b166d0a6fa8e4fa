"""Several runs side by side: transports, engines or versions, what differs first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rdt_conformance.environment import fingerprint
from rdt_conformance.report.charts import several_runs
from rdt_conformance.report.charts.marks import Chart, Missing
from rdt_conformance.report.view import DEVIATION, FAIL, UNKNOWN, WARN, RunView, Shown, shown, worst
from rdt_conformance.words import listed

ABSENT = Shown("na", " ", "not in its contract")


@dataclass(frozen=True)
class Compared:
    """One run among others."""

    run: RunView
    name: str
    """Tells it from the others."""
    link: str
    """To its own page; empty if that does not lie beside its ``report.json``."""

    def clause(self, clause_id: str) -> Mapping[str, Any] | None:
        """A clause as this run saw it, if its contract had that."""
        return self._by_id.get(clause_id)

    @cached_property
    def _by_id(self) -> dict[str, Mapping[str, Any]]:
        return {clause["id"]: clause for clause in self.run.clauses}

    def status(self, clause_id: str) -> Shown:
        """The status of a clause over all engines of the run."""
        clause = self.clause(clause_id)
        return ABSENT if clause is None else worst(clause)

    def reasons(self, clause_id: str) -> list[tuple[Shown, str, str]]:
        """Status, engine and reason of a clause on each engine."""
        clause = self.clause(clause_id)
        results = clause["results"] if clause else ()
        return [(shown(clause, result), result["engine"], result["reason"]) for result in results if clause]

    def number(self, status: Shown) -> int:
        """How many clauses have a status."""
        return sum(worst(clause) is status for clause in self.run.clauses)


@dataclass(frozen=True)
class Line:
    """One property of the runs, with its value for each."""

    name: str
    values: Sequence[str]

    @property
    def differs(self) -> bool:
        """Whether the runs do not agree on it."""
        return len(set(self.values)) > 1


class Comparison:
    """What the page of several runs shows.

    Args:
        reports: where each report lies, and what `rdt_conformance.report.json_report.read` returned for it.
        folder: where the page will lie, for its links.
    """

    def __init__(self, reports: Sequence[tuple[Path, Mapping[str, Any]]], folder: Path) -> None:
        runs = [RunView(document) for _, document in reports]
        links = [_link(path, folder) for path, _ in reports]
        self.runs = [Compared(run, name, link) for run, name, link in zip(runs, _names(runs), links, strict=True)]
        clauses = {clause["id"]: clause for run in runs for clause in run.clauses}
        self._statuses = {clause_id: [run.status(clause_id) for run in self.runs] for clause_id in clauses}
        self._clauses = clauses

    def _where(self, wanted: int) -> list[Mapping[str, Any]]:
        return [clause for clause_id, clause in self._clauses.items() if _kind(self._statuses[clause_id]) == wanted]

    @cached_property
    def telling(self) -> list[Mapping[str, Any]]:
        """The clauses that some hold and others do not, or nobody knows."""
        return self._where(0)

    @cached_property
    def applicable(self) -> list[Mapping[str, Any]]:
        """The clauses that merely do not speak of all of them."""
        return self._where(1)

    @cached_property
    def alike(self) -> list[Mapping[str, Any]]:
        """The clauses on which all agree."""
        return self._where(2)

    @cached_property
    def capabilities(self) -> list[Line]:
        """The facts of each transport, those that differ first."""
        facts = [{fact["name"]: str(fact["value"]) for fact in run.run.target["facts"]} for run in self.runs]
        return _lines(facts)

    @cached_property
    def charts(self) -> list[Chart | Missing]:
        """What was measured, the runs side by side; nothing if fewer than two have benchmarks."""
        measured = [compared for compared in self.runs if compared.run.cells]
        if len(measured) < 2:
            return []
        first, *others = (fingerprint(compared.run.environment) for compared in measured)
        alike = all(other == first for other in others)
        return several_runs.charts([(compared.name, compared.run.cells) for compared in measured], alike=alike)

    @cached_property
    def environments(self) -> list[Line]:
        """Where and how each run took place, what differs first."""
        return _lines([_environment(run.run) for run in self.runs])


def _kind(statuses: Sequence[Shown]) -> int:
    if len(set(statuses)) == 1:
        return 2
    return 0 if {FAIL, DEVIATION, WARN, UNKNOWN} & set(statuses) else 1


def _lines(of_runs: Sequence[Mapping[str, str]]) -> list[Line]:
    names = dict.fromkeys(name for values in of_runs for name in values)
    lines = [Line(name, [values.get(name, "") for values in of_runs]) for name in names]
    return sorted(lines, key=lambda line: not line.differs)


def _environment(run: RunView) -> dict[str, str]:
    environment = run.environment
    plain = {name: str(environment[name]) for name in ("profile", "seed", "python", "platform", "cpu", "cores")}
    plain["gpus"] = "; ".join(environment.get("gpus", ()))
    packages = {name: version or "" for name, version in environment["packages"].items()}
    suite = {"rdt-conformance": run.header["suite_version"], "engines": listed(run.engines)}
    return suite | plain | packages | dict(environment.get("variables", {}))


def _names(runs: Sequence[RunView]) -> list[str]:
    """The end of each target's name; with the engines, the versions and the time, as far as that is needed."""
    named = [run.target["spec"].rpartition(":")[2] for run in runs]
    for more in (
        [run.target["spec"] for run in runs],
        [listed(run.engines) for run in runs],
        [run.packages for run in runs],
        [run.environment["profile"] for run in runs],
        [run.header["created"].replace("T", " ").removesuffix("Z") for run in runs],
        [f"no. {number}" for number in range(1, len(runs) + 1)],
    ):
        again = Counter(named)
        if max(again.values()) == 1:
            break
        distinct = {name: len({m for n, m in zip(named, more, strict=True) if n == name}) > 1 for name in again}
        named = [f"{name}, {m}" if distinct[name] else name for name, m in zip(named, more, strict=True)]
    return named


def _link(report: Path, folder: Path) -> str:
    page = report.with_name("report.html")
    return quote(os.path.relpath(page, folder)) if page.is_file() else ""
