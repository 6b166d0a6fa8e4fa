"""Axes: where a value lies, and what is written beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from rdt_conformance.report.charts import scale
from rdt_conformance.report.charts.scale import Axis

MAKERS: list[Callable[[str, Sequence[float]], Axis]] = [
    scale.seconds, scale.rates, scale.counts, scale.shares, scale.ratios, scale.sizes,
]  # fmt: skip
SPANS = ([1.0], [3e-9, 4e-9], [2.0, 2.1], [1e-6, 1e-3], [4, 64 << 20], [1, 1e12], [5e-7, 120.0], [1, 1.0001])


def labels(axis: Axis) -> list[str]:
    return [tick.label for tick in axis.ticks]


@pytest.mark.parametrize("values", SPANS, ids=str)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_values_and_ticks_lie_on_the_axis(make: Callable[[str, Sequence[float]], Axis], values: list[float]) -> None:
    axis = make("t", values)
    assert all(0 < axis.at(value) < 1 for value in values)
    places = [axis.at(tick.value) for tick in axis.ticks]
    assert all(0 <= place <= 1 for place in places) and places == sorted(places)
    assert len(places) <= scale.MOST_TICKS + 1
    assert (axis.at(axis.low), axis.at(axis.high)) == (0, 1)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (scale.seconds("t", [1.2e-5, 3.4e-3]), ["10 µs", "30 µs", "100 µs", "300 µs", "1 ms", "3 ms"]),
        (scale.seconds("t", [1e-9, 1.0]), ["10 ns", "1 µs", "100 µs", "10 ms", "1 s"]),
        (scale.seconds("t", [1.01e-3, 1.4e-3]), ["1 ms", "1.1 ms", "1.2 ms", "1.3 ms", "1.4 ms"]),
        (scale.rates("t", [3e6, 2e9]), ["3 MB/s", "10 MB/s", "30 MB/s", "100 MB/s", "300 MB/s", "1 GB/s"]),
        (scale.counts("t", [1, 10_000]), ["1", "10", "100", "1,000", "10,000"]),
        (scale.sizes("t", [4, 64 << 20]), ["16 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB"]),
        (scale.sizes("t", [1, 8]), ["1 B", "2 B", "4 B", "8 B"]),
        (scale.ratios("t", [0.5, 0.6]), ["0.5x", "1x"]),
        (scale.shares("t", [0.02, 1.3]), ["2 %", "5 %", "10 %", "20 %", "50 %", "100 %"]),
        (scale.tail("t", 0.9995), ["50 %", "90 %", "99 %", "99.9 %"]),
        (scale.linear("t", 2.0), ["0", "0.5", "1", "1.5", "2"]),
        (scale.linear("t", 1.0, "{:.0f}".format, 1), ["0", "1"]),
        (scale.linear("t", 0.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_ticks_are_round_and_have_units(axis: Axis, expected: list[str]) -> None:
    assert labels(axis) == expected


def test_logarithmic_axes_are_even_in_ratios_and_tails_in_what_is_beyond() -> None:
    sizes = scale.sizes("t", [4, 64 << 20])
    steps = [sizes.at(4 * 4**step) for step in range(5)]
    assert [round(after - before, 9) for before, after in pairwise(steps)] == [round(steps[1] - steps[0], 9)] * 4
    tail = scale.tail("t", 0.999)
    assert math.isclose(tail.at(0.99) - tail.at(0.9), tail.at(0.999) - tail.at(0.99))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (scale.in_seconds(1.234e-5), "12.3 µs"),
        (scale.in_seconds(0.0121), "12.1 ms"),
        (scale.in_rate(4.966e9), "4.97 GB/s"),
        (scale.in_rate(12), "12 B/s"),
        (scale.in_percent(0.337), "34 %"),
        (scale.in_percent(0.0012), "0.12 %"),
        (scale.in_percent(12.5), "1,250 %"),
    ],
)
def test_values_in_words(said: str, expected: str) -> None:
    assert said == expected
