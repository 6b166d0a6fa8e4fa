"""Judges a run: what holds, what is broken, what nobody knows, and the exit status that follows.

The rules, in the order in which they decide:

* A clause **fails** on an engine if a check's failure names it, also if the failure does not come again.
* It **passes** if a check that lists it went through the situation it speaks of (`CheckResult.seen`) unharmed.
* Otherwise it is **unknown**, with the reason. Unknown is never green: it makes the run inconclusive.
* A check that crashed proves nothing, neither for the transport nor against it.

Nothing here runs or imports a transport: a verdict can be passed again on results read from a report.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rdt_conformance import contract
from rdt_conformance.contract import Clause, Level
from rdt_conformance.ladder import LADDER, Rung
from rdt_conformance.results import CheckResult, Failure
from rdt_conformance.words import count, few, listed


class Status(enum.Enum):
    """What is known of one clause on one engine. Ordered from worst to best; known deviations will join here."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    PASS = "pass"
    NOT_APPLICABLE = "not applicable"


class Exit(enum.IntEnum):
    """The exit statuses that a verdict can ask for; pytest's own 2, 4 and 5 keep their meaning."""

    CONFORMANT = 0
    BROKEN = 1
    HARNESS_ERROR = 3
    INCONCLUSIVE = 8


class Judged(Protocol):
    """The one thing about a target that the verdict needs."""

    def applies(self, clause: Clause, /) -> bool:
        """Whether the clause speaks of this transport at all."""
        ...


@dataclass(frozen=True)
class ClauseResult:
    """One clause on one engine."""

    clause: Clause
    engine: str
    status: Status
    reason: str = ""
    """Why it is unknown or does not apply, or what happened when it broke; empty for a pass."""
    checks: tuple[str, ...] = ()
    """The checks that decided it or, if it is unknown, those that should have."""
    failures: tuple[Failure, ...] = ()
    """What broke it, the clearest first: repeatable before flaky, a short history before a long one."""
    elsewhere: bool = False
    """It does not apply on this engine, but it binds the transport on others."""

    @property
    def excused(self) -> bool:
        """Unknown, and the register says in writing why it is not tested."""
        return self.status is Status.UNKNOWN and bool(self.clause.untested)

    @property
    def open(self) -> bool:
        """Unknown in a way that forbids a verdict: it binds the transport and nothing excuses it."""
        return self.status is Status.UNKNOWN and not self.excused and self.clause.level is not Level.REPORT


@dataclass(frozen=True)
class Obstacle:
    """One clause that keeps a transport from the next rung, and why."""

    clause: str
    why: str


@dataclass(frozen=True)
class HarnessError:
    """A mistake of this suite. It says nothing about the transport."""

    check: str
    engine: str
    what: str


@dataclass(frozen=True)
class Observation:
    """One fact that a check noted on the way and that has no right or wrong."""

    what: str
    value: Any
    engine: str
    check: str


@dataclass(frozen=True)
class Counts:
    """How much work stands behind a verdict. `seconds` adds up the checks, also those that ran side by side."""

    checks: int
    examples: int
    transfers: int
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """What a run says about a transport. `clauses` is in the order of the areas, then of the register, then engines."""

    clauses: tuple[ClauseResult, ...]
    engines: tuple[str, ...]
    partial: bool
    level: Rung | None
    """The highest rung reached; None if not even the first was, or the run was partial."""
    next_level: Rung | None
    next_blocked_by: tuple[Obstacle, ...]
    exit_status: Exit
    headline: str
    counts: Counts
    warnings: tuple[ClauseResult, ...]
    """The broken SHOULD clauses."""
    harness_errors: tuple[HarnessError, ...]
    facts: tuple[Observation, ...]

    def broken(self, level: Level) -> tuple[ClauseResult, ...]:
        """The clauses of this level that do not hold, one entry for each engine."""
        return tuple(r for r in self.clauses if r.status is Status.FAIL and r.clause.level is level)

    def by_clause(self) -> dict[str, tuple[ClauseResult, ...]]:
        """The results of each clause on every engine, by clause id."""
        return _by_clause(self.clauses)


def judge(
    results: Sequence[CheckResult],
    target: Judged,
    engines: Iterable[str],
    *,
    selected_all: bool,
    register: Mapping[str, Clause] | None = None,
) -> Verdict:
    """Judge everything the register holds by what the checks found.

    Args:
        results: every check on every engine, also those that did not run.
        target: the transport; it knows which clauses speak of it.
        engines: the engines that were asked for. One that has results is judged even if it is missing here.
        selected_all: False if the user picked checks (``-k``, ``-m``, node ids); such a run never earns a verdict.
        register: the clauses by id, in the order of the areas; those of this version, unless a report brings its own.
    """
    register = contract.CLAUSES if register is None else register
    run_on = tuple(dict.fromkeys([*engines, *(result.engine for result in results)]))
    clauses = tuple(
        _judge_clause(clause, engine, target, [r for r in results if r.engine == engine], selected_all)
        for clause in register.values()
        for engine in run_on
    )
    harness_errors = tuple(_harness_errors(results, target, register))
    level, next_level, obstacles = _climb(clauses) if selected_all else (None, None, ())
    return Verdict(
        clauses=clauses,
        engines=run_on,
        partial=not selected_all,
        level=level,
        next_level=next_level,
        next_blocked_by=obstacles,
        exit_status=_exit_status(clauses, harness_errors, selected_all),
        headline=_headline(clauses, harness_errors, run_on, selected_all),
        counts=_count(results),
        warnings=tuple(r for r in clauses if r.status is Status.FAIL and r.clause.level is Level.SHOULD),
        harness_errors=harness_errors,
        facts=tuple(
            Observation(what, value, result.engine, result.name)
            for result in results
            if result.outcome != "error"
            for what, value in result.facts.items()
        ),
    )


def worst(results: Iterable[ClauseResult]) -> Status:
    """One status for a clause that ran on several engines: the worst; a clause that applies nowhere does not apply."""
    return min((result.status for result in results), key=list(Status).index)


def _judge_clause(
    clause: Clause, engine: str, target: Judged, results: Sequence[CheckResult], selected_all: bool
) -> ClauseResult:
    if not target.applies(clause):
        return ClauseResult(clause, engine, Status.NOT_APPLICABLE, f"only for {clause.applies.value}")
    if engine not in clause.engines:
        return ClauseResult(clause, engine, Status.NOT_APPLICABLE, _needs_engine(clause), elsewhere=True)

    guilty = [r for r in results if r.outcome != "error" and any(f.clause == clause.id for f in r.failures)]
    if guilty and clause.level is not Level.REPORT:
        failures = sorted((f for r in guilty for f in r.failures if f.clause == clause.id), key=_clarity)
        return ClauseResult(clause, engine, Status.FAIL, failures[0].happened, _names(guilty), tuple(failures))

    listing = [r for r in results if clause.id in r.clauses]
    witnesses = [r for r in listing if r.outcome in ("passed", "broken") and clause.id in r.seen]
    # What the check of one half of a clause could not try, that of the other half has not tried either.
    skipped = any(r.outcome == "not run" and r.clauses[0] == clause.id for r in listing)
    if witnesses and not skipped:
        return ClauseResult(clause, engine, Status.PASS, checks=_names(witnesses))
    blind = [r for r in listing if r not in witnesses]
    return ClauseResult(clause, engine, Status.UNKNOWN, _why_unknown(clause, blind, selected_all), _names(blind))


def _why_unknown(clause: Clause, listing: Sequence[CheckResult], selected_all: bool) -> str:
    if listing:
        return "; ".join(dict.fromkeys(_why_unseen(result) for result in listing))
    if clause.untested:
        return clause.untested
    return "no check reported on it" if selected_all else "not selected"


def _why_unseen(result: CheckResult) -> str:
    broken = ", ".join(dict.fromkeys(failure.clause for failure in result.failures))
    match result.outcome:
        case "not run":
            return result.reason or "its check did not run and gave no reason"
        case "error":
            return "its check crashed, which is a harness error"
        case _ if broken:
            return f"its check had not come to it when {broken} broke"
        case _:
            return "its check ran, but the situation it speaks of never arose"


def _harness_errors(
    results: Sequence[CheckResult], target: Judged, register: Mapping[str, Clause]
) -> Iterable[HarnessError]:
    """Crashes of checks, and results that contradict the register: neither may go unnoticed or count against anyone."""
    for result in results:
        if result.outcome == "error":
            yield HarnessError(result.name, result.engine, result.reason or "crashed without a reason")
            continue
        if result.outcome == "broken" and not result.failures:
            yield HarnessError(result.name, result.engine, "says that a clause is broken, but not which")
        for failure in result.failures:
            if problem := _contradiction(failure.clause, result.engine, target, register):
                yield HarnessError(result.name, result.engine, f"says that {failure.clause} is broken, {problem}")


def _contradiction(clause_id: str, engine: str, target: Judged, register: Mapping[str, Clause]) -> str:
    clause = register.get(clause_id)
    if clause is None:
        return "which is not in the register"
    if not target.applies(clause):
        return f"which binds {clause.applies.value} only"
    if engine not in clause.engines:
        return f"which {_needs_engine(clause)}"
    if clause.level is Level.REPORT:
        return "which has no right or wrong"
    return ""


def _climb(results: Sequence[ClauseResult]) -> tuple[Rung | None, Rung | None, tuple[Obstacle, ...]]:
    """How far up the ladder a transport gets: the rung reached, the next one, and what is in the way.

    A rung takes every MUST clause that binds the transport, also one that needs an engine that was not run. A rung of
    which nothing binds it, or nothing can be tested, is stepped over: neither reached nor missed.
    """
    reached: Rung | None = None
    for rung in LADDER:
        binding = [
            rows
            for rows in _by_clause(results).values()
            if rows[0].clause.area in rung.areas and rows[0].clause.level is Level.MUST and _binds(rows)
        ]
        obstacles = tuple(Obstacle(rows[0].clause.id, why) for rows in binding if (why := _why_not(rows)))
        if obstacles:
            return reached, rung, obstacles
        if any(row.status is Status.PASS for rows in binding for row in rows):
            reached = rung
    return reached, None, ()


def _binds(rows: Sequence[ClauseResult]) -> bool:
    return any(row.status is not Status.NOT_APPLICABLE or row.elsewhere for row in rows)


def _why_not(rows: Sequence[ClauseResult]) -> str:
    """Why a clause does not hold for the ladder; empty if it does."""
    match worst(rows):
        case Status.FAIL:
            return "broken"
        case Status.UNKNOWN if any(row.open for row in rows):
            return "unknown"
        case Status.NOT_APPLICABLE:
            return _needs_engine(rows[0].clause)
    return ""


def _exit_status(clauses: Sequence[ClauseResult], harness_errors: Sequence[HarnessError], selected_all: bool) -> Exit:
    if any(r.status is Status.FAIL and r.clause.level is Level.MUST for r in clauses):
        return Exit.BROKEN
    if harness_errors:
        return Exit.HARNESS_ERROR
    if not selected_all or not _exercised(clauses) or any(r.open for r in clauses):
        return Exit.INCONCLUSIVE
    return Exit.CONFORMANT


def _headline(
    clauses: Sequence[ClauseResult], harness_errors: Sequence[HarnessError], engines: Sequence[str], selected_all: bool
) -> str:
    """One sentence that says why the run ends as it does; the cases are those of `_exit_status`.

    The clauses that only another engine or nothing yet can test stay in the number of those that bind the transport.
    """
    broken = _ids(r for r in clauses if r.status is Status.FAIL and r.clause.level is Level.MUST)
    binding = [clause_id for clause_id, rows in _by_clause(clauses).items() if _binds(rows)]
    exercised = _exercised(clauses)
    share = f"{len(exercised)} of {count(len(binding), 'clause')} exercised"
    unknown = _ids(r for r in clauses if r.open)
    match _exit_status(clauses, harness_errors, selected_all):
        case Exit.BROKEN if selected_all:
            return f"not conformant: {count(len(broken), 'MUST clause')} broken ({few(broken)})"
        case Exit.BROKEN:
            return f"partial run: {share}; {count(len(broken), 'MUST clause')} broken ({few(broken)})"
        case Exit.HARNESS_ERROR:
            mistakes = count(len(harness_errors), "harness error")
            say = "says" if len(harness_errors) == 1 else "say"
            return f"no verdict: {mistakes} in this suite, which {say} nothing about the transport"
        case Exit.INCONCLUSIVE if not selected_all:
            return f"partial run: {share}; not a verdict on the transport"
        case Exit.INCONCLUSIVE if not exercised:
            return "inconclusive: nothing was tested"
        case Exit.INCONCLUSIVE:
            return f"inconclusive: {count(len(unknown), 'applicable clause')} not exercised ({few(unknown)})"
        case Exit.CONFORMANT:
            warnings = _ids(r for r in clauses if r.status is Status.FAIL)
            but = f", {count(len(warnings), 'SHOULD clause')} broken ({few(warnings)})" if warnings else ""
            return f"conformant: every MUST clause that could be tested holds{but}; {share} on {listed(engines)}"


def _count(results: Sequence[CheckResult]) -> Counts:
    return Counts(
        checks=sum(result.outcome != "not run" for result in results),
        examples=sum(result.examples for result in results),
        transfers=sum(result.transfers for result in results),
        seconds=sum(result.seconds for result in results),
    )


def _clarity(failure: Failure) -> tuple[bool, int]:
    return failure.flaky, len(failure.history)


def _exercised(results: Iterable[ClauseResult]) -> list[str]:
    return _ids(r for r in results if r.status in (Status.PASS, Status.FAIL))


def _ids(results: Iterable[ClauseResult]) -> list[str]:
    return list(dict.fromkeys(result.clause.id for result in results))


def _names(results: Iterable[CheckResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.name for result in results))


def _by_clause(results: Iterable[ClauseResult]) -> dict[str, tuple[ClauseResult, ...]]:
    grouped: dict[str, tuple[ClauseResult, ...]] = {}
    for result in results:
        grouped[result.clause.id] = (*grouped.get(result.clause.id, ()), result)
    return grouped


def _needs_engine(clause: Clause) -> str:
    """``needs the ray engine``."""
    return f"needs the {' or '.join(sorted(clause.engines))} engine"
