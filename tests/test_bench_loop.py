"""The measuring loop, with contenders that only pretend and a clock that they set."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from rdt_conformance.bench.loop import STAGES, Plan, Sample, Series, measure
from rdt_conformance.bench.statistics import ratio


@dataclass
class Machine:
    """What contenders share: a clock, and the order in which they came."""

    now: float = 0.0
    log: list[str] = field(default_factory=list)
    speed: Callable[[float], float] = lambda now: 1.0


class Pretender:
    """Takes as long as it is told; the first time ten times as long."""

    def __init__(
        self,
        machine: Machine,
        name: str = "it",
        seconds: float = 0.01,
        wrong_in: tuple[int, ...] = (),
        fails: str = "",
        building: float = 0.0,
    ) -> None:
        self.counters: dict[str, float] = {"metadata_bytes": 7}
        self._machine = machine
        self._name = name
        self._seconds = seconds
        self._wrong_in = wrong_in
        self._fails = fails
        self._cycles = 0
        machine.log.append(f"build {name}")
        machine.now += building
        if fails == "build":
            raise MemoryError("no room")

    def cycle(self, turn: int) -> Sample:
        self._machine.log.append(self._name)
        self._cycles += 1
        if self._fails == "cycle" and self._cycles == 5:
            raise ConnectionError("gone")
        took = self._seconds * self._machine.speed(self._machine.now) * (10 if self._cycles == 1 else 1)
        self._machine.now += took
        return Sample(wait=took, whole=took)

    def wrong(self, turn: int) -> str:
        return "byte 70 is 0x00" if self._cycles in self._wrong_in else ""

    def close(self) -> None:
        self._machine.log.append(f"close {self._name}")


def _measure(machine: Machine, plan: Plan, **contenders: dict[str, object]) -> dict[str, Series]:
    makers = {
        name: lambda name=name, how=how: Pretender(machine, name, **how)  # type: ignore[arg-type]
        for name, how in contenders.items()
    }
    return measure(makers, plan, lambda: machine.now)


def test_contenders_take_turns_there_and_back() -> None:
    machine = Machine()
    series = _measure(machine, Plan(seconds=2, epochs=1, soak=0), a={}, b={}, c={})
    turns = [name for name in machine.log if " " not in name]
    timed = turns[-3 * len(series["a"].samples) :]
    rounds = [tuple(timed[start : start + 6]) for start in range(0, len(timed), 6)]
    assert all(order == order[::-1] and set(order) == {"a", "b", "c"} for order in rounds)
    assert len(set(rounds)) == 6  # every order comes


def test_they_are_built_anew_in_every_epoch_and_closed() -> None:
    machine = Machine()
    series = _measure(machine, Plan(seconds=4, epochs=4), a={}, b={})
    counts = Counter(machine.log)
    assert counts["build a"] == counts["close a"] == counts["build b"] == counts["close b"] == 4
    assert [sample.wait for sample in series["a"].cold] == pytest.approx([0.1] * 4)
    assert max(sample.wait for sample in series["a"].samples) < 0.011


@pytest.mark.parametrize(
    ("building", "epochs", "built"),
    [(0.1, 4, 4), (2.0, 4, 3), (9.0, 4, 2), (60.0, 4, 2), (0.05, 30, 30), (1.0, 30, 8), (60.0, 1, 1)],
)
def test_what_takes_long_to_build_is_built_less_often(building: float, epochs: int, built: int) -> None:
    machine = Machine()
    series = _measure(machine, Plan(seconds=4, epochs=epochs, soak=0), a={"building": building}, b={})
    assert Counter(machine.log)["build a"] == len(series["a"].cold) == built
    assert 3.5 < machine.now - built * building < 4.5 + 0.2 * built, "all the time is for measuring"


def test_the_builds_share_the_time_and_there_are_pairs_enough() -> None:
    machine = Machine()
    slow: dict[str, object] = {"building": 9.0, "seconds": 0.06}
    series = _measure(machine, Plan(seconds=4, epochs=4, soak=0), a=slow, b={"seconds": 0.06})
    assert len(series["a"].samples) >= 30, "fewer would say nothing"
    ends = [at for at, what in enumerate(machine.log) if what == "close a"]
    cycles = [machine.log[start:end].count("a") for start, end in zip([0, *ends], ends, strict=False)]
    assert len(cycles) == 2 and 0.7 < cycles[0] / cycles[1] < 1.4


def test_a_drift_that_would_fool_a_sequence_does_not_fool_pairs() -> None:
    machine = Machine(speed=lambda now: 1 + now)
    series = _measure(machine, Plan(seconds=4, epochs=2), a={}, b={"seconds": 0.011})
    slower = ratio(series["b"].ready, series["a"].ready)
    assert slower.low <= 1.1 <= slower.high
    assert slower.high < 1.15


def test_the_first_one_soaks_so_that_rare_corruption_is_seen() -> None:
    for seconds, epochs in ((1, 1), (2, 4)):
        plan = Plan(seconds=seconds, epochs=epochs, most_pairs=40)
        clean = _measure(Machine(), plan, a={"seconds": 0.001}, b={"seconds": 0.001})
        assert clean["a"].verified >= 120 > clean["b"].verified
        assert len(clean["a"].samples) == len(clean["b"].samples) == 40
        rare = _measure(Machine(), plan, a={"seconds": 0.001, "wrong_in": (100,)}, b={"seconds": 0.001})
        assert "wrong data" in rare["a"].problem and not rare["b"].problem


def test_soaking_ends_when_time_does() -> None:
    machine = Machine()
    assert _measure(machine, Plan(seconds=1, epochs=1), a={"seconds": 0.02}, b={"seconds": 0.02})["a"].verified < 120
    assert machine.now < 3


def test_samples_stay_in_the_order_of_time() -> None:
    machine = Machine(speed=lambda now: 1 + now)
    series = _measure(machine, Plan(seconds=4, epochs=2), a={}, b={})
    assert series["a"].ready == sorted(series["a"].ready)
    assert len(series["a"].ready) == len(series["b"].ready) >= 30


@pytest.mark.parametrize("seconds", [0.5, 5])
def test_it_takes_as_long_as_it_may(seconds: float) -> None:
    machine = Machine()
    series = _measure(machine, Plan(seconds=seconds, epochs=2), a={"seconds": 0.002}, b={"seconds": 0.002})
    assert 0.8 * seconds <= machine.now <= seconds + 0.24  # soaking comes on top
    assert len(series["a"].samples) >= 30


def test_too_little_time_is_doubled_for_the_sake_of_enough_pairs_and_no_more() -> None:
    machine = Machine()
    assert len(_measure(machine, Plan(seconds=0.6, epochs=1, soak=0), a={}, b={})["a"].samples) == 30
    assert machine.now < 1.2
    slow = Machine()
    series = _measure(slow, Plan(seconds=0.6, epochs=1), a={"seconds": 0.1}, b={"seconds": 0.1})
    assert 2 <= len(series["a"].samples) < 10


def test_a_fast_contender_is_not_measured_for_ever() -> None:
    series = _measure(Machine(), Plan(seconds=1e6, most_pairs=40, epochs=2), a={}, b={})
    assert len(series["a"].samples) == 40


def test_wrong_data_take_the_place_of_numbers_and_the_others_go_on() -> None:
    for wrong_in in (1, 3, 30):  # cold, warming up, measured
        series = _measure(Machine(), Plan(seconds=2, epochs=1), a={"wrong_in": (wrong_in,)}, b={}, c={})
        assert "wrong data in cycle" in series["a"].problem and "byte 70 is 0x00" in series["a"].problem
        assert not series["a"].samples and not series["a"].cold
        assert len(series["b"].samples) == len(series["c"].samples) >= 30
        assert not series["b"].problem


@pytest.mark.parametrize(("fails", "said"), [("build", "MemoryError: no room"), ("cycle", "ConnectionError: gone")])
def test_an_error_is_the_reason_why_there_is_no_number(fails: str, said: str) -> None:
    machine = Machine()
    series = _measure(machine, Plan(seconds=2, epochs=2), a={"fails": fails}, b={})
    assert series["a"].problem == said and not series["a"].samples
    assert len(series["b"].samples) >= 30
    assert machine.log.count("build a") == 1
    assert machine.log.count("close a") == (fails == "cycle")


def test_if_all_fail_it_ends() -> None:
    series = _measure(Machine(), Plan(seconds=2, epochs=3), a={"fails": "cycle"}, b={"fails": "build"})
    assert all(each.problem for each in series.values())


def test_every_cycle_is_verified_and_counters_come_along() -> None:
    machine = Machine()
    series = _measure(machine, Plan(seconds=2, epochs=2), a={}, b={})
    assert series["b"].verified == machine.log.count("b")
    assert series["a"].verified == machine.log.count("a")
    assert series["a"].counters == {"metadata_bytes": 7}


def test_a_sample_has_every_stage() -> None:
    assert set(STAGES) < set(Sample._fields)
    sample = Sample(1, 2, 4, 8, 16, 32, 64, 127)
    assert sum(getattr(sample, stage) for stage in STAGES) == sample.whole
    assert sample.ready == 2 + 8 + 16 + 32


class _Nothing:
    """Costs nothing but two looks at the clock."""

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}

    def cycle(self, turn: int) -> Sample:
        began = time.perf_counter()
        ended = time.perf_counter()
        return Sample(wait=ended - began, whole=ended - began)

    def wrong(self, turn: int) -> str:
        return ""

    def close(self) -> None:
        pass


def test_the_loop_adds_next_to_nothing_to_what_is_timed() -> None:
    samples = measure({"a": _Nothing, "b": _Nothing}, Plan(seconds=0.3, epochs=1))["a"].ready
    assert np.median(samples) < 2e-6
