"""What was measured, as charts need it: who has numbers, what they are called, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rdt_conformance.bench.results import CellResult, Row
from rdt_conformance.bench.statistics import percentile
from rdt_conformance.report.charts.marks import Point, Series, Table
from rdt_conformance.report.charts.scale import Say
from rdt_conformance.words import count

OWN = "this transport"
MOVES_NOTHING = "first touch"
"""The limit of the machine that is about memory alone; no share of it is told."""

Value = Callable[[CellResult, Row], float | None]
Name = Callable[[CellResult, Row], str]


@dataclass(frozen=True)
class Lines:
    """Several contenders over one quantity, with the table of the same and what is missing."""

    series: Sequence[Series]
    table: Table
    notes: Sequence[str]

    @property
    def xs(self) -> list[float]:
        """Every abscissa."""
        return [point.x for each in self.series for point in each.points]

    @property
    def ys(self) -> list[float]:
        """Every ordinate, with the bands."""
        points = [point for each in self.series for point in each.points]
        return [value for point in points for value in (point.y, point.low, point.high) if value is not None]


def problem(row: Row) -> str:
    """Why a contender has no numbers that could be shown; empty if it has."""
    if row.problem:
        return row.problem
    if not row.verified:
        return "not verified: not one of its transfers was compared byte by byte"
    times = [row.median, *row.samples]
    fine = row.samples and all(math.isfinite(time) and time > 0 for time in times)
    return "" if fine else "no samples"


def usable(cell: CellResult) -> list[Row]:
    """The contenders of a cell that have numbers. Second instances of one are there for the statistics alone."""
    return [row for row in cell.rows if row.role != "again" and not problem(row)]


def own(cell: CellResult) -> Row | None:
    """The transport under test, if it has numbers there."""
    return next((row for row in usable(cell) if row.role == "transport"), None)


def named(row: Row) -> str:
    """What a contender is called on a page about one transport."""
    return OWN if row.role == "transport" else row.name.removeprefix("peer ")


def middle_half(row: Row) -> tuple[float | None, float | None]:
    """Between which two values half of the samples lie, if enough are beyond them."""
    return percentile(row.samples, 25), percentile(row.samples, 75)


def fastest_limit(cell: CellResult) -> Row | None:
    """The limit of the machine that moves the same bytes in the least time."""
    limits = [row for row in usable(cell) if row.role == "ceiling" and row.name != MOVES_NOTHING]
    return min(limits, key=lambda row: row.median, default=None)


def share_of_limit(cell: CellResult, row: Row) -> float | None:
    """What part of the speed of the fastest limit a contender reaches."""
    limit = fastest_limit(cell)
    return limit.median / row.median if limit and row.role != "ceiling" else None


def _named(_: CellResult, row: Row) -> str:
    return named(row)


def without_numbers(cells: Iterable[CellResult], name: Name = _named) -> Iterator[str]:
    """A line for each cell or contender that is not in a chart, with the reason; the same reason once."""
    missing: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.why_not:
            missing.setdefault(("", cell.why_not), []).append(cell.cell)
        for row in cell.rows:
            if row.role != "again" and (why := problem(row)):
                missing.setdefault((name(cell, row), why), []).append(cell.cell)
    for (who, why), where in missing.items():
        yield f"No number{f' of {who}' if who else ''} at {', '.join(where)}: {why}"


def lines(
    cells: Iterable[CellResult],
    x: Callable[[CellResult], float],
    y: Value,
    *,
    say_x: tuple[str, Say],
    say_y: tuple[str, Say],
    band: bool = False,
    mark: Value | None = None,
    name: Name = _named,
) -> Lines:
    """A line for each contender.

    Args:
        cells: those that the lines go through.
        x: the abscissa of a cell.
        y: the ordinate of a contender in it; None if it has none.
        say_x: what `x` is called in the table, and its values in words.
        say_y: the same of `y`.
        band: the transport under test has one, of the middle half of its samples.
        mark: a share that is written beside each point of the transport under test.
        name: what a contender is called.
    """
    order = sorted(cells, key=x)
    found: dict[str, list[Point]] = {}
    counted: dict[float, int] = {}
    for cell in order:
        for row in usable(cell):
            ordinate = y(cell, row)
            if ordinate is None or not math.isfinite(ordinate) or ordinate <= 0:
                continue
            low, high = middle_half(row) if band and row.role == "transport" else (None, None)
            share = mark(cell, row) if mark and row.role == "transport" else None
            counted[x(cell)] = min(len(row.samples), counted.get(x(cell), len(row.samples)))
            told = f"{name(cell, row)}, {say_x[1](x(cell))}: {say_y[1](ordinate)}, {count(len(row.samples), 'sample')}"
            label = "" if share is None else f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
            found.setdefault(name(cell, row), []).append(Point(x(cell), ordinate, low, high, told, label))
    series = [Series(each, points, number) for number, (each, points) in enumerate(found.items())]
    return Lines(series, _table(series, counted, say_x, say_y, banded=band), list(without_numbers(order, name)))


def _table(
    series: Sequence[Series],
    counted: dict[float, int],
    say_x: tuple[str, Say],
    say_y: tuple[str, Say],
    *,
    banded: bool,
) -> Table:
    """A row for each abscissa, a column for each contender."""
    by_x = [{point.x: point for point in each.points} for each in series]
    rows = []
    for x, samples in counted.items():
        points = [known.get(x) for known in by_x]
        cells = ["-" if point is None else _worded(point, say_y[1]) for point in points]
        first = points[0] if points else None
        band = "-"
        if first is not None and first.low is not None and first.high is not None:
            band = f"{say_y[1](first.low)} to {say_y[1](first.high)}"
        rows.append([say_x[1](x), str(samples), *([band] if banded else []), *cells])
    head = [say_x[0], "samples, at least", *(["middle half"] if banded else [])]
    return Table([*head, *(f"{each.name}, {say_y[0]}" for each in series)], rows)


def _worded(point: Point, say: Say) -> str:
    return f"{say(point.y)} ({point.label})" if point.label else say(point.y)
