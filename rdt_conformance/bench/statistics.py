"""What follows from samples that were taken in turn: ratios with intervals, and verdicts that noise does not make.

Times of a computer drift, come in bursts and have long tails. So only pairs are compared, by the logarithm of their
ratio; the middle is the median; and the interval comes from a bootstrap that draws whole stretches of neighbouring
pairs, as single ones would pass for independent.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEWEST_PAIRS = 30
"""With less nothing is said about a ratio."""
LEAST_FLOOR = 0.05
"""Differences smaller than this are nobody's fault."""
MOST_ALIKE = 0.1
"""What may differ by more is not called the same, however high the floor is."""
SAMPLES_BEYOND = 10
"""So many samples have to lie beyond a percentile, or it would be chance."""
_RESAMPLES = 1000


@dataclass(frozen=True)
class Interval:
    """A ratio, and where it lies with a confidence of 95 %."""

    middle: float
    low: float
    high: float
    pairs: int

    @property
    def half_width(self) -> float:
        """Half the width of the interval, as a share of the middle."""
        return (self.high - self.low) / 2 / self.middle

    def __str__(self) -> str:
        return f"{self.middle:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Verdict(str, enum.Enum):
    """What a comparison says of the candidate."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"


def ratio(numerators: Sequence[float], denominators: Sequence[float], seed: int = 0) -> Interval:
    """How many times as large the first ones are, pair by pair, in the order of time.

    Raises:
        ValueError: there are no pairs, or not as many of one as of the other.
    """
    logs = log_ratios(numerators, denominators)
    middle, medians = np.median(logs), _resampled_medians(logs, seed)
    low, high = middle + _widening(logs) * (np.quantile(medians, (0.025, 0.975)) - middle)
    return Interval(math.exp(middle), math.exp(low), math.exp(high), len(logs))


def floor(one: Sequence[float], same: Sequence[float], seed: int = 0) -> float:
    """What may be found between two that are the same, as a share: 0.08 for 8 %.

    Args:
        one: times of one of them, in the order of time.
        same: times of the other, pair by pair.
        seed: of the resampling.

    Returns:
        The 95th percentile of the difference that such a comparison finds, and `LEAST_FLOOR` at least.
    """
    logs = log_ratios(one, same)
    middle = np.median(logs)
    medians = middle + _widening(logs) * (_resampled_medians(logs, seed) - middle)
    return max(LEAST_FLOOR, math.expm1(float(np.quantile(np.abs(medians), 0.95))))


def judge(slower: Interval, floor: float) -> Verdict:
    """What to say of a candidate that takes `slower` times as long as what it is compared to.

    A difference counts if the whole interval is beyond the floor; the two are the same if it is within, and within
    `MOST_ALIKE`.
    """
    if slower.pairs < FEWEST_PAIRS:
        return Verdict.INCONCLUSIVE
    if slower.low > 1 + floor:
        return Verdict.WORSE
    if slower.high < 1 / (1 + floor):
        return Verdict.BETTER
    alike = 1 + min(floor, MOST_ALIKE)
    if 1 / alike <= slower.low and slower.high <= alike:
        return Verdict.SAME
    return Verdict.INCONCLUSIVE


def percentile(samples: Sequence[float], percent: float) -> float | None:
    """A percentile, or None if fewer than `SAMPLES_BEYOND` samples lie beyond it on its nearer side."""
    beyond = min(percent, 100 - percent) / 100 * len(samples)
    if beyond < SAMPLES_BEYOND - 1e-9:
        return None
    return float(np.percentile(samples, percent))


def log_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> NDArray[np.float64]:
    """The logarithm of each pair's ratio.

    Raises:
        ValueError: there are no pairs, or not as many of one as of the other.
    """
    if not numerators or len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} and {len(denominators)} samples do not make pairs")
    return np.log(np.asarray(numerators, float)) - np.log(np.asarray(denominators, float))


def block_length(values: NDArray[np.float64]) -> int:
    """How long the stretches have to be that a bootstrap of the median draws.

    After Politis and White, "Automatic block-length selection for the dependent bootstrap" (2004, corrected 2009), for
    circular blocks. What depends on the past is taken to be on which side of the median a value lies: that is what
    moves a median, and no outlier can hide it.
    """
    count = len(values)
    least = math.ceil(count ** (1 / 3))  # a dependence too weak to be seen in so few values still counts
    sides = np.sign(values - np.median(values))
    sides -= sides.mean()
    # Values around which a stretch of `tried` negligible ones begins do not matter any more.
    tried = max(5, math.ceil(math.sqrt(math.log10(count)))) if count > 1 else 5
    most = math.ceil(math.sqrt(count)) + tried
    if count <= 2 * most or not sides.any():
        return least
    waves = np.fft.rfft(sides, 2 * count)
    covariances = np.fft.irfft(waves * waves.conj())[: 2 * most + 1] / count
    negligible = np.abs(covariances / covariances[0]) < 2 * math.sqrt(math.log10(count) / count)
    last = next((lag for lag in range(most) if negligible[lag + 1 : lag + 1 + tried].all()), most)
    if last == 0:
        return least
    lags = np.arange(1, min(2 * last, len(covariances) - 1) + 1)
    weights = np.clip(2 * (1 - lags / (2 * last)), 0, 1) * covariances[lags]
    spectrum = covariances[0] + 2 * weights.sum()
    slope = 2 * (lags * weights).sum()
    if spectrum <= 0:  # neighbours cancel out
        return least
    length = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    return int(np.clip(math.ceil(length), least, min(3 * math.sqrt(count), count / 3)))


def _widening(values: NDArray[np.float64]) -> float:
    """How much wider the interval has to be as it comes from few stretches: Student's t by the normal, nearly."""
    return 1 + 1.21 / max(1.0, len(values) / block_length(values) - 1)


def _resampled_medians(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The medians of resamples that are made of stretches of the values, which are taken to close to a circle."""
    count, length = len(values), block_length(values)
    blocks = math.ceil(count / length)
    starts = np.random.default_rng(seed).integers(0, count, (_RESAMPLES, blocks, 1))
    drawn = (starts + np.arange(length)).reshape(_RESAMPLES, -1)[:, :count] % count
    return np.median(values[drawn], axis=1)
