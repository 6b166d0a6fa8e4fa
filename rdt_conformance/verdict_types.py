"""What a verdict consists of. `rdt_conformance.verdict` draws it, and offers these types too."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from rdt_conformance.contract_types import Clause, Level
from rdt_conformance.deviations import Deviation
from rdt_conformance.ladder import Rung
from rdt_conformance.results import Failure


class Status(enum.Enum):
    """What is known of one clause on one engine. Ordered from worst to best."""

    FAIL = "fail"
    DEVIATION = "deviation"
    """It does not hold, and is listed as known and accepted."""
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
    deviation: Deviation | None = None
    """The entry by which it is accepted that it does not hold."""
    hidden_by: tuple[str, ...] = ()
    """Unknown only because its checks ended when these clauses broke, which are listed as deviations."""

    @property
    def excused(self) -> bool:
        """Unknown, and it is in writing why: the register says it, or what hides it is a listed deviation."""
        return self.status is Status.UNKNOWN and bool(self.clause.untested or self.hidden_by)

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
    """The broken SHOULD clauses that are not listed as deviations."""
    deviations: tuple[ClauseResult, ...]
    """What does not hold and is listed."""
    unmet: tuple[str, ...]
    """What the user demands of the run besides, and is not so: a line each."""
    harness_errors: tuple[HarnessError, ...]
    facts: tuple[Observation, ...]

    def broken(self, level: Level) -> tuple[ClauseResult, ...]:
        """The clauses of this level that do not hold, one entry for each engine."""
        return tuple(r for r in self.clauses if r.status is Status.FAIL and r.clause.level is level)

    def by_clause(self) -> dict[str, tuple[ClauseResult, ...]]:
        """The results of each clause on every engine, by clause id."""
        return by_clause(self.clauses)


def by_clause(results: Iterable[ClauseResult]) -> dict[str, tuple[ClauseResult, ...]]:
    """The results of each clause on every engine, by clause id."""
    grouped: dict[str, tuple[ClauseResult, ...]] = {}
    for result in results:
        grouped[result.clause.id] = (*grouped.get(result.clause.id, ()), result)
    return grouped


def worst(results: Iterable[ClauseResult]) -> Status:
    """One status for a clause that ran on several engines: the worst; a clause that applies nowhere does not apply."""
    return min((result.status for result in results), key=list(Status).index)
