"""Axes: where a value lies, and which values are written beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rdt_conformance.words import in_bytes, in_time

Say = Callable[[float], str]
"""A value in words."""
MOST_TICKS = 7
_ROOM = 0.04
"""The part of an axis that is left free on each side of the values."""


@dataclass(frozen=True)
class Tick:
    """A value that is written beside an axis."""

    value: float
    label: str


@dataclass(frozen=True)
class Axis:
    """Maps values to shares of its length.

    Args:
        title: what is measured, with the unit where the ticks do not have it.
        low: the value at its beginning.
        high: the value at its end.
        ticks: in the order of their values.
        bend: what is even along the axis: the value itself, its logarithm, or how few are beyond.
    """

    title: str
    low: float
    high: float
    ticks: Sequence[Tick]
    bend: Callable[[float], float] = float

    def at(self, value: float) -> float:
        """Where a value lies: 0 at the beginning, 1 at the end."""
        low, high = self.bend(self.low), self.bend(self.high)
        return (self.bend(value) - low) / (high - low)


def seconds(title: str, values: Iterable[float]) -> Axis:
    """Durations, by their logarithm: ``10 µs``, ``1 ms``."""
    return _decades(title, values, in_seconds)


def rates(title: str, values: Iterable[float]) -> Axis:
    """Bytes in a second, by their logarithm: ``1 GB/s``."""
    return _decades(title, values, in_rate)


def counts(title: str, values: Iterable[float]) -> Axis:
    """Numbers of things, by their logarithm: ``1,000``."""
    return _decades(title, values, lambda value: f"{value:,.0f}")


def shares(title: str, values: Iterable[float]) -> Axis:
    """Parts of something, by their logarithm: ``10 %``."""
    return _decades(title, values, in_percent)


def ratios(title: str, values: Iterable[float]) -> Axis:
    """How many times, by its logarithm; 1 is always on it: ``2x``."""
    return _decades(title, [1.0, *values], lambda value: f"{value:g}x")


def sizes(title: str, values: Iterable[float]) -> Axis:
    """Bytes, by their logarithm: ``4 KiB``, at powers of two."""
    low, high = _with_room(values)
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = next(step for step in (1, 2, 4, 5, 10, 20, 50, 100, 1100) if (last - first) // step < MOST_TICKS)
    exponents = [exponent for exponent in range(max(0, first), last + 1) if exponent % step == 0]
    return Axis(title, low, high, [Tick(2.0**each, in_bytes(2**each)) for each in exponents], math.log)


def linear(title: str, most: float, say: Say = lambda value: f"{value:g}", least_step: float = 0.0) -> Axis:
    """From zero to `most`, with ticks that are no closer than `least_step`."""
    high = most if most > 0 else 1.0
    step = max(_step(high), least_step)
    ticks = [number * step for number in range(int(high / step + 1e-9) + 1)]
    return Axis(title, 0.0, high, [Tick(value, say(value)) for value in ticks])


def tail(title: str, nearest: float) -> Axis:
    """Percentiles, by how few are beyond them: as far from 90 % to 99 % as from there to 99.9 %.

    Args:
        title: of the axis.
        nearest: the highest share, below 1.
    """
    marks = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999]
    high = max(nearest, 0.9)
    ticks = [Tick(value, f"{100 * value:.7g} %") for value in marks if value <= high]
    return Axis(title, 0.0, high, ticks, lambda share: -math.log1p(-share))


def in_seconds(value: float) -> str:
    """``12.3 µs``."""
    return in_time(value).replace(" us", " µs")


def in_rate(value: float) -> str:
    """``4.97 GB/s``."""
    for length, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= length:
            return f"{value / length:.3g} {unit}"
    return f"{value:.3g} B/s"


def in_percent(share: float) -> str:
    """``34 %``, ``0.12 %``."""
    return f"{100 * share:,.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _decades(title: str, values: Iterable[float], say: Say) -> Axis:
    """Ticks at 1, 2 and 5 of each power of ten, or at some of them."""
    low, high = _with_room(values)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 5), ((1,), 100)):
        values = [step * 10.0**power for power in range(first, last + 1) if power % every == 0 for step in steps]
        ticks = [value for value in values if low <= value <= high]
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) < 2:  # it spans less than a doubling
        step = _step(high - low)
        ticks = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return Axis(title, low, high, [Tick(value, say(value)) for value in ticks], math.log)


def _with_room(values: Iterable[float]) -> tuple[float, float]:
    """The least and the largest of positive values, and a little more on both sides."""
    found = list(values)
    low, high = min(found), max(found)
    if high < low * 1.1:
        return low / 1.5, high * 1.5
    room = (high / low) ** _ROOM
    return low / room, high * room


def _step(span: float) -> float:
    """A round step of which four to eight make the span, or nearly."""
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= rough * 0.999)
