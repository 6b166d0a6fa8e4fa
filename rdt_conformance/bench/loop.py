"""The measuring loop: contenders take turns, everything that arrives is verified, and every sample is kept.

What else the machine does meets all contenders alike, because each round runs through them in an order that is drawn
anew, and then back again (ABBA). They are built anew several times, as where in memory something happens to lie can
make a difference too; the first cycle after that, which registers and connects, counts apart, as *cold*.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from rdt_conformance.author import describe
from rdt_conformance.bench.process import ProcessGone, RemoteError
from rdt_conformance.bench.statistics import FEWEST_PAIRS

STAGES = ("create", "extract", "control", "fetch", "wait", "first_read", "collect")
"""What a cycle consists of: the source fills its tensors and describes them, messages go to and fro, the receiver
fetches (or takes part in a two-sided transfer), waits, and reads what came; the source frees the object."""
_WARM_UP_TURNS = 10
_WARM_UP_SECONDS = 0.05
"""Warming up ends after so many turns of each contender, or with the first one after this time."""


class Sample(NamedTuple):
    """One cycle: the seconds of each stage, of all of them, and what it took of the processors."""

    create: float = 0.0
    extract: float = 0.0
    control: float = 0.0
    fetch: float = 0.0
    wait: float = 0.0
    first_read: float = 0.0
    collect: float = 0.0
    whole: float = 0.0
    cpu: float = 0.0
    """Seconds of processor time of both processes, from the description to the end of the first read."""
    end_to_end: float = 0.0
    """For whole RDT: from the task that returns tensors to the task that has them."""

    @property
    def ready(self) -> float:
        """What is compared: the transport's own part of the time until the data are there and have been read.

        For whole RDT it is all of it.
        """
        return self.end_to_end or self.extract + self.fetch + self.wait + self.first_read


class Contender(Protocol):
    """Moves one load again and again, a new content every time."""

    counters: dict[str, float]
    """What does not depend on the load of the machine, such as ``metadata_bytes``; of the last cycle."""

    def cycle(self, turn: int) -> Sample:
        """Move the content of this turn."""
        ...

    def wrong(self, turn: int) -> str:
        """How what the last cycle brought differs from the content of this turn; empty if every byte is right."""
        ...

    def close(self) -> None:
        """Give back everything."""
        ...


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Args:
        seconds: what it may take, without building the contenders; twice as much if there would be fewer than
            `FEWEST_PAIRS`.
        most_pairs: enough, even where there is more time.
        epochs: how often the contenders are built; less often, down to a quarter of it, where that would take more
            than twice as long as to measure.
        soak: cycles of the first contender in the last epoch, at least; those after the last round are verified alone.
            What goes wrong once in a hundred times is then seen. It may take as long as an epoch.
        seed: of the order of turns.
    """

    seconds: float
    most_pairs: int = 2000
    epochs: int = 4
    soak: int = 120
    seed: int = 0

    def affordable(self, building: float) -> int:
        """How many epochs there are, if each begins with so many seconds of building."""
        # Always so many: to tell what memory happened to do from what is always so takes two.
        fewest = min(self.epochs, max(2, -(-self.epochs // 4)))
        most = self.epochs if building <= 0 else min(self.epochs, int(2 * self.seconds / building))
        return max(fewest, most)


@dataclass
class Series:
    """What was measured of one contender."""

    cold: list[Sample] = field(default_factory=list)
    """The first cycle of each epoch."""
    samples: list[Sample] = field(default_factory=list)
    """In the order of time. Those of two contenders with the same index are a pair."""
    verified: int = 0
    """Cycles of which every byte was compared, outside the clock: all of them, also those that warmed up."""
    counters: dict[str, float] = field(default_factory=dict)
    """See `Contender.counters`."""
    problem: str = ""
    """Why there is no number: wrong data, or an error."""

    @property
    def ready(self) -> list[float]:
        """The time until the data were there, sample by sample."""
        return [sample.ready for sample in self.samples]

    def followed_by(self, later: Series) -> Series:
        """Both together; nothing if one of them has a problem."""
        if problem := self.problem or later.problem:
            return Series(problem=problem)
        verified = self.verified + later.verified
        return Series(self.cold + later.cold, self.samples + later.samples, verified, later.counters)


def measure(
    makers: Mapping[str, Callable[[], Contender]], plan: Plan, now: Callable[[], float] = time.monotonic
) -> dict[str, Series]:
    """Measure all contenders in turn.

    One that fails or brings wrong data loses its samples and is left out from then on; the others go on.

    Args:
        makers: builds each contender.
        plan: how much.
        now: a clock, for the plan's seconds.
    """
    measuring = _Measuring(makers, plan, now)
    measuring.run()
    return measuring.series


class _Measuring:
    def __init__(self, makers: Mapping[str, Callable[[], Contender]], plan: Plan, now: Callable[[], float]) -> None:
        self._makers = makers
        self._plan = plan
        self._now = now
        self._draw = np.random.default_rng(plan.seed)
        self._turn = 0
        self._rounds = 0
        self._contenders: dict[str, Contender] = {}
        self.series = {name: Series() for name in makers}

    def run(self) -> None:
        """Measure in as many epochs as can be afforded."""
        building, given, epoch = math.inf, 0.0, 0
        while epoch < self._plan.affordable(building):
            epoch += 1
            with ExitStack() as stack:
                began = self._now()
                self._build(stack)
                built = self._now()
                for name in self._order():
                    self._cycle(name, self.series[name].cold)
                building = min(building, self._now() - began)  # the first time processes may be started as well
                left = self._plan.affordable(building) - epoch + 1
                seconds = (self._plan.seconds - given) / left
                given += seconds
                self._epoch(built, seconds, left)

    def _epoch(self, began: float, seconds: float, left: int) -> None:
        """Warm up, measure as many rounds as there is time for, and in the end soak the first contender.

        Args:
            began: when the contenders had been built.
            seconds: what it may take since then.
            left: how many epochs there are still, this one among them.
        """
        first = next(iter(self._makers))
        before = self.series[first].verified - (first in self._contenders)
        warm = self._now()
        for _ in range(_WARM_UP_TURNS):
            for name in self._order():
                self._cycle(name, [])
            if self._now() - warm > _WARM_UP_SECONDS:
                break
        rounds, calibrated = 0, self._now()
        most, fewest = ((pairs / 2 - self._rounds) / left for pairs in (self._plan.most_pairs, FEWEST_PAIRS))
        while self._contenders and rounds < most:
            now = self._now()
            late = now - began + (now - calibrated) / max(1, rounds) - seconds
            enough = rounds >= fewest or (rounds and late > seconds)
            if late > 0 and enough:
                break
            self._round()
            rounds += 1
        self._rounds += rounds
        soak = self._plan.soak if left == 1 else 0
        end = self._now() + self._plan.seconds / self._plan.epochs
        while self.series[first].verified < before + soak and first in self._contenders and self._now() < end:
            self._cycle(first, [])

    def _build(self, stack: ExitStack) -> None:
        self._contenders = {}
        for name, series in self.series.items():
            if series.problem:
                continue
            try:
                self._contenders[name] = self._makers[name]()
                stack.callback(self._contenders[name].close)
            except Exception as error:
                self._fail(name, in_words(error))

    def _order(self) -> list[str]:
        return self._draw.permutation(list(self._contenders)).tolist()

    def _round(self) -> None:
        """Every contender once, and once more in the opposite order."""
        order = self._order()
        for name in [*order, *reversed(order)]:
            self._cycle(name, self.series[name].samples)

    def _cycle(self, name: str, keep: list[Sample]) -> None:
        contender = self._contenders.get(name)
        if contender is None:  # it failed in the first half of this round
            return
        self._turn += 1
        try:
            sample = contender.cycle(self._turn)
            wrong = contender.wrong(self._turn)
        except Exception as error:
            self._fail(name, in_words(error))
            return
        if wrong:
            self._fail(name, f"wrong data in cycle {self._turn}: {wrong}")
            return
        self.series[name].verified += 1
        self.series[name].counters = contender.counters
        keep.append(sample)

    def _fail(self, name: str, problem: str) -> None:
        self.series[name] = Series(problem=problem)
        self._contenders.pop(name, None)


def in_words(error: Exception) -> str:
    """What is told of an error, from this process or another one."""
    return str(error) if isinstance(error, RemoteError | ProcessGone) else describe(error)
