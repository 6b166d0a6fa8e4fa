"""All samples of a cell: how they are distributed, and how they followed each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rdt_conformance.bench.results import CellResult, Row
from rdt_conformance.bench.statistics import SAMPLES_BEYOND
from rdt_conformance.report.charts import scale
from rdt_conformance.report.charts.marks import Chart, Missing, Plot, Point, Series, Table
from rdt_conformance.report.charts.measured import fastest_limit, named, own, usable
from rdt_conformance.report.charts.transfers import SIZES, of
from rdt_conformance.words import count

STEPS = 80
"""Points of a distribution, closer together where fewer samples lie beyond."""
DOTS = 300
"""Samples that are drawn in the order of time; of more, the least and the largest of each stretch."""
_TOO_FEW = "no size has {} samples with exact data"
_PERCENTS = (0.5, 0.9, 0.99, 0.999)


def distributions(cells: Sequence[CellResult]) -> list[Chart | Missing]:
    """The distribution of the smallest and of the largest size, with the tail."""
    chosen = _ends(cells, 2 * SAMPLES_BEYOND)
    if not chosen:
        return [Missing("Distribution of the samples", _TOO_FEW.format(2 * SAMPLES_BEYOND))]
    return [_distribution(cell, number) for number, cell in enumerate(chosen, 1)]


def in_time(cells: Sequence[CellResult]) -> list[Chart | Missing]:
    """The samples of the same sizes, one after the other."""
    chosen = _ends(cells, 2)
    if not chosen:
        return [Missing("Samples in the order of time", _TOO_FEW.format(2))]
    return [_in_time(cell, number) for number, cell in enumerate(chosen, 1)]


def _ends(cells: Sequence[CellResult], least: int) -> list[CellResult]:
    """The smallest and the largest size with as many samples."""
    found = [cell for cell in of(cells, SIZES) if (row := own(cell)) and len(row.samples) >= least]
    return found if len(found) < 2 else [found[0], found[-1]]


def _distribution(cell: CellResult, number: int) -> Chart:
    rows = usable(cell)
    series = [_curve(row, style) for style, row in enumerate(rows)]
    points = [point for each in series for point in each.points]
    time = scale.seconds("time until the data are there", [point.y for point in points])
    ours = next(row for row in rows if row.role == "transport")
    beyond = sorted(ours.samples)[-1] / ours.median
    return Chart(
        f"distribution-{number}",
        f"Distribution of the samples, {cell.cell}",
        f"The slowest of {count(len(ours.samples), 'sample')} took {beyond:.1f} times the median.",
        "Lower is faster; a line that turns up at the right has a tail. The axis opens that up: it gives as much room "
        f"to the slowest tenth as to the tenth of that. Dotted where fewer than {SAMPLES_BEYOND} samples lie beyond.",
        Plot(scale.tail("samples that took no longer", max(point.x for point in points)), time, series, "curves"),
        Table(
            ["contender", "samples", "fastest", *(f"p{100 * p:g}" for p in _PERCENTS), "slowest"],
            [_told(row) for row in rows],
        ),
        ["p50 and above are given where ten samples lie beyond them."],
    )


def _curve(row: Row, style: int) -> Series:
    ordered = sorted(row.samples)
    total = len(ordered)
    most = math.log(2 * total)
    places = sorted({min(total - 1, int(-math.expm1(-most * step / STEPS) * total)) for step in range(STEPS + 1)})
    points = [Point((place + 0.5) / total, ordered[place]) for place in places]
    enough = next((at for at, place in enumerate(places) if total - place <= SAMPLES_BEYOND), None)
    return Series(named(row), points, style, doubtful_from=enough)


def _told(row: Row) -> list[str]:
    at = {name: scale.in_seconds(value) for name, value in row.percentiles.items()}
    percentiles = [at.get(f"{100 * p:g}", "-") for p in _PERCENTS]
    ends = [scale.in_seconds(value) for value in (min(row.samples), max(row.samples))]
    return [named(row), str(len(row.samples)), ends[0], *percentiles, ends[1]]


def _in_time(cell: CellResult, number: int) -> Chart:
    limit, ours = fastest_limit(cell), own(cell)
    rows = [row for row in usable(cell) if row in (ours, limit) or row.role == "baseline"]
    series = [Series(named(row), list(_dots(row)), style) for style, row in enumerate(rows)]
    points = [point for each in series for point in each.points]
    total = max(len(row.samples) for row in rows)
    thinned = f"Of {total:,} samples in a row, {DOTS} are drawn: the least and the largest of each stretch."
    return Chart(
        f"in-time-{number}",
        f"Samples in the order of time, {cell.cell}",
        f"{count(total, 'turn')}, in which all contenders took part.",
        "A level cloud is a quiet machine. What rises for all at the same time is the machine; what rises for one "
        "alone is that one.",
        Plot(
            scale.linear("turn", max(1, total - 1), lambda turn: f"{turn:,.0f}", 1),
            scale.seconds("time until the data are there", [point.y for point in points]),
            series,
            "dots",
        ),
        Table(
            ["contender", "samples", "p50 of the first half", "p50 of the second half", "slowest", "in turn"],
            [_halves(row) for row in rows],
        ),
        [thinned, "report.json has them all."] if total > DOTS else [],
    )


def _dots(row: Row) -> Iterator[Point]:
    total = len(row.samples)
    stretch = max(1, math.ceil(total / (DOTS / 2)))
    for first in range(0, total, stretch):
        turns = range(first, min(total, first + stretch))
        least, most = (pick(turns, key=row.samples.__getitem__) for pick in (min, max))
        for turn in sorted({least, most} if total > DOTS else turns):
            yield Point(turn, row.samples[turn])


def _halves(row: Row) -> list[str]:
    half = len(row.samples) // 2
    parts = (row.samples[:half] or row.samples, row.samples[half:])
    slowest = max(range(len(row.samples)), key=row.samples.__getitem__)
    middles = [scale.in_seconds(sorted(part)[len(part) // 2]) for part in parts]
    return [named(row), str(len(row.samples)), *middles, scale.in_seconds(row.samples[slowest]), str(slowest)]
