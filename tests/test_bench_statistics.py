"""The statistics of the benchmarks, on synthetic samples of which the truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from rdt_conformance.bench.statistics import (
    LEAST_FLOOR,
    Interval,
    Verdict,
    block_length,
    floor,
    judge,
    percentile,
    ratio,
)

Draw = np.random.Generator
Noise = Callable[[Draw, int], NDArray[np.float64]]
"""The logarithms of the times of two contenders that are the same, in the order of time: two rows."""

TIMES = 50


def _quiet(draw: Draw, pairs: int) -> NDArray[np.float64]:
    return draw.normal(0, 0.03, (2, pairs))


def _drifting(draw: Draw, pairs: int) -> NDArray[np.float64]:
    """The machine becomes half as fast, and fast again; that meets both."""
    return _quiet(draw, pairs) + math.log(2) * np.sin(np.linspace(0, np.pi, pairs))


def _with_outliers(draw: Draw, pairs: int) -> NDArray[np.float64]:
    return _quiet(draw, pairs) + (draw.random((2, pairs)) < 0.1) * draw.exponential(2, (2, pairs))


def _autocorrelated(draw: Draw, pairs: int) -> NDArray[np.float64]:
    """Each contender has good and bad times of its own, of a dozen pairs."""
    noise = draw.normal(0, 0.02, (2, pairs))
    for index in range(1, pairs):
        noise[:, index] += 0.8 * noise[:, index - 1]
    return noise


def _with_ties(draw: Draw, pairs: int) -> NDArray[np.float64]:
    """A coarse clock: there are only a few different times."""
    return np.log(np.round(20 * np.exp(_quiet(draw, pairs))) / 20)


NOISES = (_quiet, _drifting, _with_outliers, _autocorrelated, _with_ties)


@lru_cache
def _gates(noise: Noise) -> list[tuple[Interval, float]]:
    """What gates find between a candidate and a baseline that are the same: the ratio, and the floor."""
    found = []
    for seed in range(TIMES):
        draw = np.random.default_rng(seed)
        (baseline, candidate), (one, same) = np.exp(noise(draw, 300)).tolist(), np.exp(noise(draw, 300)).tolist()
        found.append((ratio(candidate, baseline, seed), floor(one, same, seed)))
    return found


def _slower(by: float, noise: Noise) -> list[tuple[Interval, float, Verdict]]:
    """The same gates if the candidate takes `by` times as long, which only shifts the logarithms."""
    found = []
    for same, least in _gates(noise):
        slower = Interval(same.middle * by, same.low * by, same.high * by, same.pairs)
        found.append((slower, least, judge(slower, least)))
    return found


each_noise = pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__.strip("_"))


@each_noise
def test_the_interval_holds_the_truth_as_often_as_it_says(noise: Noise) -> None:
    holds = [found.low <= 1 <= found.high for found, _ in _gates(noise)]
    assert sum(holds) >= 0.86 * TIMES  # 95 % is what it says; that so few show two more or less is chance


@each_noise
def test_what_is_the_same_is_never_called_worse(noise: Noise) -> None:
    verdicts = [verdict for _, _, verdict in _slower(1, noise)]
    assert verdicts.count(Verdict.WORSE) + verdicts.count(Verdict.BETTER) == 0
    assert verdicts.count(Verdict.SAME) >= 0.9 * TIMES


@each_noise
def test_ten_percent_are_seen_and_twenty_too(noise: Noise) -> None:
    for by, least in ((1.1, 0.95), (1.2, 1.0)):
        clear = [verdict for _, floor_found, verdict in _slower(by, noise) if floor_found < 0.08]
        assert len(clear) >= 0.8 * TIMES
        assert clear.count(Verdict.WORSE) >= least * len(clear)


@each_noise
def test_three_percent_are_never_better_and_worse_only_if_the_interval_says_so(noise: Noise) -> None:
    for found, least, verdict in _slower(1.03, noise):
        assert verdict is not Verdict.BETTER
        assert verdict is not Verdict.WORSE or found.low > 1 + least


@pytest.mark.parametrize(
    ("interval", "floor", "said"),
    [
        ((1.20, 1.06, 1.30), 0.05, Verdict.WORSE),
        ((1.20, 1.04, 1.30), 0.05, Verdict.INCONCLUSIVE),
        ((1.20, 1.06, 1.30), 0.10, Verdict.INCONCLUSIVE),
        ((0.80, 0.75, 0.90), 0.05, Verdict.BETTER),
        ((0.96, 0.90, 1.02), 0.05, Verdict.INCONCLUSIVE),
        ((1.00, 0.96, 1.04), 0.05, Verdict.SAME),
        ((1.00, 1.00, 1.00), 0.05, Verdict.SAME),
        ((1.00, 0.92, 1.08), 0.30, Verdict.SAME),
        ((1.00, 0.85, 1.15), 0.30, Verdict.INCONCLUSIVE),
    ],
)
def test_the_rule(interval: tuple[float, float, float], floor: float, said: Verdict) -> None:
    assert judge(Interval(*interval, pairs=30), floor) is said


def test_with_too_few_pairs_nothing_is_said() -> None:
    assert judge(ratio([2.0] * 29, [1.0] * 29), 0.05) is Verdict.INCONCLUSIVE
    assert judge(ratio([2.0] * 30, [1.0] * 30), 0.05) is Verdict.WORSE


def test_the_floor_is_what_the_same_thing_differs_by() -> None:
    assert floor([1.0] * 40, [1.0] * 40) == LEAST_FLOOR
    assert floor([1.2] * 40, [1.0] * 40) == pytest.approx(0.2)
    assert floor([1.0] * 40, [1.2] * 40) == pytest.approx(0.2)


def test_the_result_depends_on_nothing_but_samples_and_seed() -> None:
    draw = np.random.default_rng(1)
    one, other = draw.random(50).tolist(), draw.random(50).tolist()
    assert ratio(one, other, seed=3) == ratio(one, other, seed=3) != ratio(one, other, seed=4)


def test_of_one_pair_there_is_a_ratio_and_no_verdict() -> None:
    found = ratio([2.0], [1.0])
    assert (found.middle, found.low, found.high, found.pairs) == (2.0, 2.0, 2.0, 1)


@pytest.mark.parametrize(("one", "other"), [([], []), ([1.0], []), ([1.0, 2.0], [1.0])])
def test_what_makes_no_pairs_is_refused(one: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match="do not make pairs"):
        ratio(one, other)


def test_stretches_are_longer_where_neighbours_are_alike() -> None:
    draw = np.random.default_rng(0)
    independent, dependent = _quiet(draw, 500)[0], _autocorrelated(draw, 500)[0]
    assert block_length(independent) < block_length(dependent)
    assert block_length(np.ones(500)) == block_length(independent)  # nothing but ties: nothing to see
    dependent[::50] = 1000  # and outliers do not hide it
    assert block_length(dependent) > block_length(independent)


@pytest.mark.parametrize(
    ("count", "percent", "given"),
    [(1000, 99, True), (999, 99, False), (20, 50, True), (19, 50, False), (100, 90, True), (100, 95, False)],
)
def test_a_percentile_has_ten_samples_beyond_it(count: int, percent: float, given: bool) -> None:
    found = percentile(range(count), percent)
    assert (found is not None) == given
    if found is not None:
        assert found == pytest.approx(np.percentile(range(count), percent))
