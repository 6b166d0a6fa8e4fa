"""Judges a run: what holds, what is broken, what nobody knows, and the exit status that follows.

The rules, in the order in which they decide:

* A clause **fails** on an engine if a check's failure names it, also if the failure does not come again.
* If the user's file lists that, it is a **deviation** instead: it does not fail the run, and is no pass either. What
  its check had not come to when it broke is hidden by it, which does not make the run inconclusive.
* It **passes** if a check that lists it went through the situation it speaks of (`CheckResult.seen`) unharmed.
* Otherwise it is **unknown**, with the reason. Unknown is never green: it makes the run inconclusive.
* A check that crashed proves nothing, neither for the transport nor against it.

Nothing here runs or imports a transport: a verdict can be passed again on results read from a report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rdt_conformance import contract, staleness
from rdt_conformance.contract import Clause, Level
from rdt_conformance.deviations import Deviations
from rdt_conformance.exposures import EXPOSURE, exposures
from rdt_conformance.ladder import LADDER, Rung
from rdt_conformance.requirements import Reached, Requirements, missing
from rdt_conformance.results import CheckResult, Failure
from rdt_conformance.verdict_types import (
    ClauseResult,
    Counts,
    Exit,
    HarnessError,
    Judged,
    Observation,
    Obstacle,
    Status,
    Verdict,
    by_clause,
    worst,
)
from rdt_conformance.words import count, few, listed

__all__ = [
    "ClauseResult",
    "Counts",
    "Exit",
    "HarnessError",
    "Judged",
    "Observation",
    "Obstacle",
    "Status",
    "Verdict",
    "by_clause",
    "judge",
    "worst",
]


NOT_SELECTED = "its checks were not selected, or not come to"
"""Why a clause is unknown in a partial run."""


def judge(
    results: Sequence[CheckResult],
    target: Judged,
    engines: Iterable[str],
    *,
    selected_all: bool,
    register: Mapping[str, Clause] | None = None,
    deviations: Deviations | None = None,
    required: Requirements | None = None,
) -> Verdict:
    """Judge everything the register holds by what the checks found.

    Args:
        results: every check on every engine, also those that did not run.
        target: the transport; it knows which clauses speak of it.
        engines: the engines that were asked for. One that has results is judged even if it is missing here.
        selected_all: False if the user picked checks (``-k``, ``-m``, node ids); such a run never earns a verdict.
        register: the clauses by id, in the order of the areas; those of this version, unless a report brings its own.
        deviations: what the user's file lists; None if there is none.
        required: what else the user asks for; None if that is nothing.
    """
    register = contract.CLAUSES if register is None else register
    run_on = tuple(dict.fromkeys([*engines, *(result.engine for result in results)]))
    clauses = tuple(
        _judge_clause(clause, engine, target, [r for r in results if r.engine == engine], selected_all, deviations)
        for clause in register.values()
        for engine in run_on
    )
    harness_errors = tuple(_harness_errors(results, target, register))
    level, next_level, obstacles = _climb(clauses) if selected_all else (None, None, ())
    facts = tuple(_facts(results))
    reached = Reached(level, next_level, obstacles)
    unmet = (
        *(staleness.stale(deviations, clauses, selected_all) if deviations else ()),
        *(missing(required, reached, facts, selected_all) if required else ()),
    )
    return Verdict(
        clauses=clauses,
        engines=run_on,
        partial=not selected_all,
        level=level,
        next_level=next_level,
        next_blocked_by=obstacles,
        exit_status=_exit_status(clauses, harness_errors, unmet, selected_all),
        headline=_headline(clauses, harness_errors, unmet, run_on, selected_all, nothing=not results),
        counts=_count(results),
        warnings=tuple(r for r in clauses if r.status is Status.FAIL and r.clause.level is Level.SHOULD),
        deviations=tuple(r for r in clauses if r.status is Status.DEVIATION),
        unmet=unmet,
        harness_errors=harness_errors,
        facts=facts,
        exposures=exposures(results),
    )


def _facts(results: Iterable[CheckResult]) -> Iterable[Observation]:
    for result in results:
        if result.outcome != "error":
            told = {what: value for what, value in result.facts.items() if what != EXPOSURE}
            yield from (Observation(what, value, result.engine, result.name) for what, value in told.items())


def _judge_clause(
    clause: Clause,
    engine: str,
    target: Judged,
    results: Sequence[CheckResult],
    selected_all: bool,
    deviations: Deviations | None,
) -> ClauseResult:
    if not target.applies(clause):
        return ClauseResult(clause, engine, Status.NOT_APPLICABLE, f"only for {clause.applies.value}{_from(clause)}")
    if engine not in clause.engines:
        return ClauseResult(clause, engine, Status.NOT_APPLICABLE, _needs_engine(clause), elsewhere=True)

    guilty = [r for r in results if r.outcome != "error" and any(f.clause == clause.id for f in r.failures)]
    if guilty and clause.level is not Level.REPORT:
        failures = sorted((f for r in guilty for f in r.failures if f.clause == clause.id), key=_clarity)
        entry = deviations.accepted(clause.id, engine) if deviations else None
        status = Status.DEVIATION if entry else Status.FAIL
        happened = failures[0].happened
        return ClauseResult(clause, engine, status, happened, _names(guilty), tuple(failures), deviation=entry)

    listing = [r for r in results if clause.id in r.clauses]
    witnesses = [r for r in listing if r.outcome in ("passed", "broken") and clause.id in r.seen]
    # What the check of one half of a clause could not try, that of the other half has not tried either.
    skipped = any(r.outcome == "not run" and r.clauses[0] == clause.id for r in listing)
    if witnesses and not skipped:
        return ClauseResult(clause, engine, Status.PASS, checks=_names(witnesses))
    blind = [r for r in listing if r not in witnesses]
    reason = _why_unknown(clause, blind, selected_all)
    hidden_by = _hidden_by(blind, deviations)
    return ClauseResult(clause, engine, Status.UNKNOWN, reason, _names(blind), hidden_by=hidden_by)


def _from(clause: Clause) -> str:
    """From which version of Ray on, if not from the oldest that there are clauses for."""
    return f", from Ray {clause.since} on" if clause.since != Clause.since else ""


def _hidden_by(blind: Sequence[CheckResult], deviations: Deviations | None) -> tuple[str, ...]:
    """The listed clauses at which the checks of an unknown one ended, if that is the only reason."""
    ended_at: dict[str, None] = {}
    for result in blind:
        broken = [failure.clause for failure in result.failures]
        listed = deviations and all(deviations.accepted(clause, result.engine) for clause in broken)
        if result.outcome != "broken" or not broken or not listed:
            return ()
        ended_at.update(dict.fromkeys(broken))
    return tuple(ended_at)


def _why_unknown(clause: Clause, listing: Sequence[CheckResult], selected_all: bool) -> str:
    if listing:
        return "; ".join(dict.fromkeys(_why_unseen(result) for result in listing))
    if clause.untested:
        return clause.untested
    return "no check reported on it" if selected_all else NOT_SELECTED


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
            for rows in by_clause(results).values()
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
        case Status.DEVIATION:
            return "listed as a deviation"
        case Status.UNKNOWN if any(row.open for row in rows):
            return "unknown"
        case Status.UNKNOWN if any(row.hidden_by for row in rows):
            return "hidden by a listed deviation"
        case Status.NOT_APPLICABLE:
            return _needs_engine(rows[0].clause)
    return ""


def _exit_status(
    clauses: Sequence[ClauseResult], harness_errors: Sequence[HarnessError], unmet: Sequence[str], selected_all: bool
) -> Exit:
    if any(r.status is Status.FAIL and r.clause.level is Level.MUST for r in clauses):
        return Exit.BROKEN
    if harness_errors:
        return Exit.HARNESS_ERROR
    if unmet:
        return Exit.BROKEN
    if not selected_all or not _exercised(clauses) or any(r.open for r in clauses):
        return Exit.INCONCLUSIVE
    return Exit.CONFORMANT


def _headline(
    clauses: Sequence[ClauseResult],
    harness_errors: Sequence[HarnessError],
    unmet: Sequence[str],
    engines: Sequence[str],
    selected_all: bool,
    *,
    nothing: bool,
) -> str:
    """One sentence that says why the run ends as it does; the cases are those of `_exit_status`.

    The clauses that only another engine or nothing yet can test stay in the number of those that bind the transport.
    """
    broken = _ids(r for r in clauses if r.status is Status.FAIL and r.clause.level is Level.MUST)
    binding = [clause_id for clause_id, rows in by_clause(clauses).items() if _binds(rows)]
    exercised = _exercised(clauses)
    share = "no check was selected" if nothing else f"{len(exercised)} of {count(len(binding), 'clause')} exercised"
    unknown = _ids(r for r in clauses if r.open)
    deviating = _ids(r for r in clauses if r.status is Status.DEVIATION)
    deviations = f"{count(len(deviating), 'listed deviation')} ({few(deviating)})"
    besides = f", {deviations}" if deviating else ""
    match _exit_status(clauses, harness_errors, unmet, selected_all):
        case Exit.BROKEN if broken and selected_all:
            return f"not conformant: {count(len(broken), 'MUST clause')} broken ({few(broken)}){besides}"
        case Exit.BROKEN if broken:
            return f"partial run: {share}; {count(len(broken), 'MUST clause')} broken ({few(broken)}){besides}"
        case Exit.BROKEN:
            more = f", and {len(unmet) - 1} more" if len(unmet) > 1 else ""
            otherwise = _headline(clauses, harness_errors, (), engines, selected_all, nothing=nothing)
            return f"demand not met: {unmet[0]}{more}; otherwise {otherwise.partition(':')[0]}"
        case Exit.HARNESS_ERROR:
            mistakes = count(len(harness_errors), "harness error")
            say = "says" if len(harness_errors) == 1 else "say"
            return f"no verdict: {mistakes} in this suite, which {say} nothing about the transport"
        case Exit.INCONCLUSIVE if not selected_all:
            return f"partial run: {share}{besides}; not a verdict on the transport"
        case Exit.INCONCLUSIVE if not exercised:
            return "inconclusive: nothing was tested"
        case Exit.INCONCLUSIVE:
            return f"inconclusive: {count(len(unknown), 'applicable clause')} not exercised ({few(unknown)}){besides}"
        case Exit.CONFORMANT:
            warnings = _ids(r for r in clauses if r.status is Status.FAIL)
            but = f", {count(len(warnings), 'SHOULD clause')} broken ({few(warnings)})" if warnings else ""
            tested = f"{share} on {listed(engines)}"
            if deviating:
                rest = "every other MUST clause that could be tested holds"
                return f"conformant with deviations: {deviations}; {rest}{but}; {tested}"
            return f"conformant: every MUST clause that could be tested holds{but}; {tested}"


def _count(results: Sequence[CheckResult]) -> Counts:
    return Counts(
        checks=sum(result.outcome != "not run" for result in results),
        examples=sum(result.examples for result in results),
        transfers=sum(result.transfers for result in results),
        seconds=math.fsum(result.seconds for result in results),  # the same in whatever order workers hand them over
    )


def _clarity(failure: Failure) -> tuple[bool, int]:
    return failure.flaky, len(failure.history)


def _exercised(results: Iterable[ClauseResult]) -> list[str]:
    return _ids(r for r in results if r.status in (Status.PASS, Status.FAIL, Status.DEVIATION))


def _ids(results: Iterable[ClauseResult]) -> list[str]:
    return list(dict.fromkeys(result.clause.id for result in results))


def _names(results: Iterable[CheckResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.name for result in results))


def _needs_engine(clause: Clause) -> str:
    """``needs the ray engine``."""
    return f"needs the {' or '.join(sorted(clause.engines))} engine"
