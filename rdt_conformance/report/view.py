"""What a page shows, drawn from ``report.json`` and from nothing else: statuses in words, things in their order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rdt_conformance.bench.results import CellResult
from rdt_conformance.exposures import EXPOSURE
from rdt_conformance.power import PART
from rdt_conformance.report import diagram, twins
from rdt_conformance.report.charts import one_run
from rdt_conformance.report.charts.marks import Chart, Missing, Table
from rdt_conformance.results import CheckResult, Failure, Step
from rdt_conformance.verdict import Exit
from rdt_conformance.words import count, listed, worded


@dataclass(frozen=True)
class Shown:
    """How a status looks. The sign says as much as the colour."""

    key: str
    """Its class in the style sheet."""
    sign: str
    word: str


PASS = Shown("pass", "✓", "pass")
FAIL = Shown("fail", "✕", "fail")
WARN = Shown("warn", "!", "warning")
DEVIATION = Shown("deviation", "≈", "listed deviation")
UNKNOWN = Shown("unknown", "?", "unknown")
NOT_TESTED = Shown("untested", "○", "not tested")
HIDDEN = Shown("untested", "○", "hidden by a deviation")
ELSEWHERE = Shown("na", "·", "needs another engine")
NOT_APPLICABLE = Shown("na", "-", "not applicable")
LEGEND = (FAIL, DEVIATION, WARN, UNKNOWN, HIDDEN, NOT_TESTED, PASS, ELSEWHERE, NOT_APPLICABLE)
"""Every status, the worst first."""

VERDICTS = {
    int(Exit.CONFORMANT): Shown("pass", "✓", "conformant"),
    int(Exit.BROKEN): Shown("fail", "✕", "not conformant"),
    int(Exit.HARNESS_ERROR): Shown("warn", "!", "no verdict"),
    int(Exit.INCONCLUSIVE): Shown("unknown", "?", "inconclusive"),
}

DEVIATING = Shown("deviation", "≈", "conformant with deviations")
UNMET = Shown("fail", "✕", "demand not met")


def outcome(document: Mapping[str, Any]) -> Shown:
    """How the verdict of a report looks."""
    verdict = document["verdict"]
    match verdict["exit_status"]:
        case Exit.CONFORMANT if verdict["deviations"]:
            return DEVIATING
        case Exit.BROKEN if not any(
            clause["level"] == "MUST" and result["status"] == "fail"
            for clause in document["clauses"]
            for result in clause["results"]
        ):
            return UNMET
        case status:
            return VERDICTS[status]


_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no page can hold, or what changes the order in which the rest of a line is read."""


def cleaned(value: Any) -> Any:
    """JSON-ready data with a visible sign in place of every character that cannot be shown."""
    match value:
        case str():
            return _UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", value)
        case list():
            return [cleaned(item) for item in value]
        case dict():
            return {cleaned(key): cleaned(item) for key, item in value.items()}
        case _:
            return value


def shown(clause: Mapping[str, Any], result: Mapping[str, Any]) -> Shown:
    """The status of one clause on one engine."""
    match result["status"]:
        case "pass":
            return PASS
        case "fail":
            return FAIL if clause["level"] == "MUST" else WARN
        case "deviation":
            return DEVIATION
        case "unknown" if result["hidden_by"]:
            return HIDDEN
        case "unknown":
            return NOT_TESTED if clause["untested"] else UNKNOWN
        case _:
            # From which version of Ray on it applies may follow.
            return NOT_APPLICABLE if result["reason"].startswith(f"only for {clause['applies']}") else ELSEWHERE


def worst(clause: Mapping[str, Any]) -> Shown:
    """The status of a clause over all engines of a run."""
    return min((shown(clause, result) for result in clause["results"]), key=LEGEND.index, default=NOT_APPLICABLE)


def anchor(text: str) -> str:
    """What an element is called for links to it."""
    return re.sub(r"[^A-Za-z0-9_]", "-", text)


@dataclass(frozen=True)
class Broken:
    """One failure of one clause, where it was found."""

    clause: Mapping[str, Any]
    engine: str
    check: str
    failure: Failure

    @cached_property
    def marked(self) -> int | None:
        """The number of the step at which it was seen."""
        return diagram.failing_step(self.failure)

    @cached_property
    def diagram(self) -> diagram.Diagram:
        """The history, laid out."""
        return diagram.draw(self.failure.history, self.marked)

    @cached_property
    def parting_step(self) -> tuple[Step, Step | None] | None:
        """See `twins.parting_step`."""
        return twins.parting_step(self.failure)

    @cached_property
    def twin_diagram(self) -> diagram.Diagram | None:
        """The history of the example that went well, laid out."""
        return diagram.draw(self.failure.twin.history) if self.failure.twin else None


@dataclass(frozen=True)
class BrokenClause:
    """A clause that does not hold: what shows it best, and what else shows it."""

    clause: Mapping[str, Any]
    status: Shown
    best: Broken
    others: Sequence[Broken]

    @property
    def engines(self) -> str:
        """Where it does not hold: ``local and ray``."""
        return listed(engines_of(self.clause, "fail", "deviation"))


def engines_of(clause: Mapping[str, Any], *statuses: str) -> list[str]:
    """The engines on which a clause has one of these statuses."""
    return [result["engine"] for result in clause["results"] if result["status"] in statuses]


class RunView:
    """One run.

    Args:
        document: what `rdt_conformance.report.json_report.read` returned.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        document = self.document = cleaned(document)
        self.verdict = document["verdict"]
        self.target = document["target"]
        self.environment = document["environment"]
        self.header = document["header"]
        self.clauses: Sequence[Mapping[str, Any]] = document["clauses"]
        self.engines: Sequence[str] = self.verdict["engines"]
        self.checks = [CheckResult.from_json(check) for check in document["checks"]]
        self.cells = [CellResult.from_json(cell) for cell in document["benchmarks"]]
        self.outcome = outcome(document)
        word, _, rest = self.verdict["headline"].partition(": ")
        self.word = word[:1].upper() + word[1:]
        """``Not conformant``"""
        self.rest = rest
        self.work = self._work()

    def _work(self) -> str:
        counts = self.verdict["counts"]
        parts = [count(counts[noun], noun.removesuffix("s")) for noun in ("checks", "examples", "transfers")]
        return f"{listed(parts)} in {counts['seconds']:,.1f} s"

    @cached_property
    def areas(self) -> dict[str, list[Mapping[str, Any]]]:
        """The clauses of each area, in the order of the contract."""
        grouped: dict[str, list[Mapping[str, Any]]] = {}
        for clause in self.clauses:
            grouped.setdefault(clause["area"], []).append(clause)
        return grouped

    def tally(self, clauses: Iterable[Mapping[str, Any]]) -> list[tuple[Shown, int]]:
        """How many of the clauses have which status at worst; only those that occur."""
        found = [worst(clause) for clause in clauses]
        return [(status, found.count(status)) for status in LEGEND if status in found]

    @cached_property
    def broken(self) -> list[BrokenClause]:
        """The clauses that do not hold: those with MUST first. Listed deviations are told apart."""
        broken = [entry for entry in self._found if entry.status is not DEVIATION]
        return sorted(broken, key=lambda entry: entry.status is not FAIL)

    @cached_property
    def deviating(self) -> list[BrokenClause]:
        """The clauses that do not hold only where that is listed."""
        return [entry for entry in self._found if entry.status is DEVIATION]

    @cached_property
    def _found(self) -> list[BrokenClause]:
        return [entry for clause in self.clauses if (entry := self._broken(clause))]

    def _broken(self, clause: Mapping[str, Any]) -> BrokenClause | None:
        engines = engines_of(clause, "fail", "deviation")
        failures = [
            Broken(clause, check.engine, check.name, failure)
            for check in self.checks
            if check.engine in engines and check.outcome != "error"
            for failure in check.failures
            if failure.clause == clause["id"]
        ]
        if not failures:
            return None
        failures.sort(key=lambda broken: (broken.failure.flaky, len(broken.failure.history)))
        return BrokenClause(clause, worst(clause), failures[0], failures[1:])

    @cached_property
    def unknown(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Why clauses are unknown: each reason with the clauses and engines that it holds for."""
        return self._by_reason(UNKNOWN)

    @cached_property
    def untested(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The same for those that the register itself excuses."""
        return self._by_reason(NOT_TESTED)

    @cached_property
    def hidden(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The same for those that no check came to because a listed deviation ended it."""
        return self._by_reason(HIDDEN)

    @cached_property
    def elsewhere(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The same for those that none of the run's engines can test."""
        return self._by_reason(ELSEWHERE)

    def _by_reason(self, status: Shown) -> list[tuple[str, list[tuple[str, str]]]]:
        reasons: dict[str, list[tuple[str, str]]] = {}
        for clause in self.clauses:
            for result in clause["results"]:
                if shown(clause, result) is status and (status is not ELSEWHERE or worst(clause) is status):
                    reasons.setdefault(result["reason"], []).append((clause["id"], result["engine"]))
        return list(reasons.items())

    def evidence(self, clause: Mapping[str, Any], result: Mapping[str, Any]) -> list[CheckResult]:
        """The checks that looked at a clause on an engine."""
        names = set(result["checks"])
        return [
            check
            for check in self.checks
            if check.engine == result["engine"] and (check.name in names or clause["id"] in check.seen)
        ]

    @cached_property
    def facts(self) -> list[tuple[str, str, str]]:
        """What was observed and has no right or wrong: what, value, engines."""
        engines: dict[tuple[str, str], list[str]] = {}
        for check in self.checks:
            for what, value in check.facts.items():
                if what == EXPOSURE:  # which has a table of its own
                    continue
                seen_on = engines.setdefault((what, worded(value)), [])
                if check.outcome != "error" and check.engine not in seen_on:
                    seen_on.append(check.engine)
        return [(what, value, listed(names)) for (what, value), names in engines.items() if names]

    @cached_property
    def charts(self) -> list[Chart | Missing]:
        """What was measured; with a reason for each chart that cannot be drawn."""
        return one_run.charts(self.cells)

    @cached_property
    def numbers(self) -> Table:
        """All that was measured."""
        return one_run.table(self.cells)

    @cached_property
    def packages(self) -> str:
        """``ray 2.60.0, torch 2.9.0``: what tells two runs apart at a glance."""
        packages = self.environment["packages"]
        return ", ".join(f"{name} {packages[name]}" for name in ("ray", "torch") if packages.get(name))

    @property
    def alarms(self) -> str:
        """How often the suite was wrong about transports that are right; nothing if that was not counted."""
        counted = self.document["alarms"]
        if not counted:
            return ""
        runs, hits = (sum(entry[key] for entry in counted) for key in ("runs", "hits"))
        right = count(len({entry["transport"] for entry in counted}), "transport")
        short = sum(entry["runs"] for entry in counted if entry["profile"] == PART)
        told = f" ({short} of them short: {PART} each)" if short else ""
        return f"Of {count(runs, 'run')} on {right} that are right{told}, {hits or 'none'} called one of them broken."

    @staticmethod
    def caught(fault: Mapping[str, Any]) -> str:
        """``quick: 20 of 20, in 1.4 s``."""
        tries = [
            f"{tried['profile']}: {tried['hits']} of {tried['runs']}, in {tried['seconds']:.1f} s"
            for tried in fault["tried"]
        ]
        return "; ".join(tries) or "not counted"

    def faults_of(self, clauses: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """What the suite is known to catch that breaks one of these clauses."""
        return [fault for clause in clauses for fault in self.document["faults"] if fault["clause"] == clause["id"]]
