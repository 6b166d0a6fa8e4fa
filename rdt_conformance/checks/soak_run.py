"""Runs a soak: round after round of `soak.Program` until time is over, and what came of it as the result of a check."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from rdt_conformance import author
from rdt_conformance.checks.case import Case
from rdt_conformance.checks.soak import GIVEN_UP, Program
from rdt_conformance.checks.verdicts import Broken, NotExercised
from rdt_conformance.engines.base import Hung, NoProcess
from rdt_conformance.engines.cluster.processes import ProcessHost
from rdt_conformance.engines.cluster.watching import EachWatch, added
from rdt_conformance.engines.reference.errors import NeedsRayError
from rdt_conformance.engines.reference.worker import Settings
from rdt_conformance.history import describe_error
from rdt_conformance.observe import Resources
from rdt_conformance.observe.drift import FEWEST_STEPS, Level, drift
from rdt_conformance.observe.resources import SHARED_MEMORY_FILES, TEMPORARY_FILES
from rdt_conformance.results import CheckResult, Failure, Series

if TYPE_CHECKING:
    from rdt_conformance.checks.bench import Bench

CLAUSES = ("G1", "L1", "O1", "D6", "G5", "R1", "R2")
"""What it can decide; the first one says for whom it is."""
_ALWAYS_SEEN = ("L1", "O1")
_ROUNDS = 10
"""As many fit into the time, if it is not too long or short for that."""
_COUNTS = 3
"""How often in a round it is counted what is held."""
_SHORTEST, _LONGEST = 1.5, 15.0
"""Seconds of work between two counts."""
_STEPS = 60
"""The longest history that is kept: the end of it."""


class Soak:
    """One soak on one bench.

    Args:
        bench: the transport on the ray engine.
        name: of the check.
    """

    def __init__(self, bench: Bench, name: str) -> None:
        self._bench, self._name = bench, name
        self._began = time.monotonic()
        self._result = CheckResult(name, bench.engine, CLAUSES, "passed")
        self._levels: list[Level] = []
        self._calm = 0
        """By how many the segments of shared memory have grown while nobody died."""
        self._points: dict[tuple[str, str], list[tuple[float, int]]] = {}

    def run(self) -> CheckResult:
        """Go on until time is over or something breaks."""
        result, bench = self._result, self._bench
        if bench.carries.refusal:
            result.outcome, result.reason = "not run", bench.carries.refusal
            return result
        began, transfers = time.monotonic(), bench.transfers
        case = Case(bench, bench.new_world(Settings(fetch_fail_timeout=GIVEN_UP)), CLAUSES)
        try:
            self._play(case)
        finally:
            bench.release(case.world, again=False)
        result.transfers = bench.transfers - transfers
        result.seconds = time.monotonic() - began
        return result

    def _play(self, case: Case) -> None:
        program: Program | None = None
        try:
            program = Program(case, random.Random(self._bench.seed_for(self._name)))
            self._rounds(case, program)
        except Broken as broken:
            self._fail(case, program, broken.clause, broken.happened, broken)
        except Hung as hung:
            self._fail(case, program, getattr(hung, "clause", "L1"), str(hung), hung)
        except (NotExercised, NeedsRayError, NoProcess) as reason:
            self._result.outcome, self._result.reason = "not run", str(reason)
        except Exception as error:  # whatever Ray or a step says of what a dead process had
            died = [name for name, by_itself in case.world.died().items() if by_itself]
            if not died:
                raise
            what = f"the process of {' and of '.join(died)} ended, and nobody had ended it"
            happened = f"{what}; then {describe_error(error)}"
            self._fail(case, program, "R2" if program is not None and program.deaths else "L1", happened, error)
        finally:
            if program is not None:
                self._tell(case, program)

    def _rounds(self, case: Case, program: Program) -> None:
        assert isinstance(case.world.host, ProcessHost)
        watch = EachWatch(case.world.host, case.world.host.driver.registry.instances())
        program.warm_up()
        self._began = time.monotonic()  # to start processes takes as long as it takes
        until = self._began + 60 * self._bench.minutes
        seconds = min(_LONGEST, max(_SHORTEST, 60 * self._bench.minutes / (_COUNTS * _ROUNDS)))
        while time.monotonic() < until:
            before = watch.settled()
            for _ in range(_COUNTS):
                ends = min(until, time.monotonic() + seconds)
                while time.monotonic() < ends:
                    program.step()
                program.drop_everything()
                after = watch.settled()
                self._calm += _segments(after) - _segments(before)
                self._note(program, after)
                before = after
            # Once at least, however short the time is: otherwise nothing is said of deaths.
            if program.survives_deaths and (not program.deaths or time.monotonic() < until):
                watch.forget(program.kill())
                program.drop_everything()
                program.warm_up()
            self._judge(case, last=False)
        self._judge(case, last=True)

    def _note(self, program: Program, held: dict[str, Resources]) -> None:
        at = round(time.monotonic() - self._began, 1)
        for process, resources in held.items():
            for kind, figure in (resources.countable() | resources.memories()).items():
                self._points.setdefault((process, kind), []).append((at, figure))
        steady = added([resources for process, resources in held.items() if process in program.steady])
        figures = steady.countable() | steady.memories() | {SHARED_MEMORY_FILES: self._calm}
        figures.pop(TEMPORARY_FILES, None)  # everybody else makes some too
        self._levels.append(Level(at, program.made, program.sent, program.deaths, figures, steady.names))

    def _judge(self, case: Case, *, last: bool) -> None:
        """Say what leaks, when it is certain: in the end, or earlier if half of the time has shown it."""
        levels = self._levels[_COUNTS:]  # the first round fills pools and caches
        if len(levels) <= FEWEST_STEPS or not (last or time.monotonic() - self._began > 30 * self._bench.minutes):
            return
        case.witness("G1")
        leaks = drift(levels)
        case.require(not leaks, "G1", "; ".join(leak.sentence for leak in leaks))

    def _fail(self, case: Case, program: Program | None, clause: str, happened: str, error: BaseException) -> None:
        self._result.outcome = "broken"
        failure = Failure(
            clause=clause,
            happened=happened,
            example=tuple(program.last) if program else (),
            history=case.world.history.steps()[-_STEPS:],
            error=author.traceback_of(error.__cause__),
            stacks=getattr(error, "stacks", ""),
            crash=case.world.last_words(),
            replay=self._bench.replay_command(self._name),
        )
        self._result.failures = (*self._result.failures, failure)

    def _tell(self, case: Case, program: Program) -> None:
        result = self._result
        seen = {*_ALWAYS_SEEN, *case.witnessed} if program.steps and result.outcome == "passed" else case.witnessed
        broken = {failure.clause for failure in result.failures}
        result.seen = tuple(clause for clause in CLAUSES if clause in seen or clause in broken)
        result.examples = program.steps
        result.facts = {
            "soak": f"{program.steps:,} steps, {program.made:,} objects ({program.sent / 1e6:,.0f} MB), "
            f"{program.deaths} actors killed and replaced, in {time.monotonic() - self._began:.0f} s",
            "situations in the soak": dict(program.situations),
        }
        result.series = tuple(
            Series(process, kind, tuple(points)) for (process, kind), points in sorted(self._points.items())
        )


def _segments(held: dict[str, Resources]) -> int:
    """Segments of shared memory, of which several processes hold the same: those of the process that has most.

    Only what comes while nobody dies is added up: what the dead leave is for R5 to say.
    """
    return max((resources.counts.get(SHARED_MEMORY_FILES, 0) for resources in held.values()), default=0)
