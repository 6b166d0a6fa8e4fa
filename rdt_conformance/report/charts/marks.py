"""What a chart consists of, before anybody decides how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rdt_conformance.report.charts.scale import Axis


@dataclass(frozen=True)
class Point:
    """A value, and the band around it if enough samples lie beyond that."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    told: str = ""
    """Comes up when the mouse rests on it."""
    label: str = ""
    """Stands beside it."""


@dataclass(frozen=True)
class Series:
    """Points that belong together, in the order of their abscissas."""

    name: str
    points: Sequence[Point]
    style: int
    """0 for what the page is about. Each has a colour, a dash and a marker of its own."""
    doubtful_from: int | None = None
    """Points from here on are too few to say much; their line is dotted."""


@dataclass(frozen=True)
class Plot:
    """Series over two axes.

    Args:
        x: the horizontal axis.
        y: the vertical axis.
        series: the one that matters most first.
        how: lines with a marker at each point, curves with a few, or dots alone.
    """

    x: Axis
    y: Axis
    series: Sequence[Series]
    how: Literal["lines", "curves", "dots"] = "lines"


@dataclass(frozen=True)
class Part:
    """A stretch of a bar. `key` is the number of its entry in the chart's legend, or 0 if there is none."""

    value: float
    key: int = 0
    told: str = ""


@dataclass(frozen=True)
class Bar:
    """A row of parts, one after the other, with words at its end."""

    name: str
    parts: Sequence[Part]
    label: str


@dataclass(frozen=True)
class Bars:
    """Horizontal bars over one axis, which begins at zero."""

    axis: Axis
    rows: Sequence[Bar]


@dataclass(frozen=True)
class Whisker:
    """A ratio with its interval, and the zone around 1 that says nothing; none if `zone` is 0."""

    name: str
    middle: float
    low: float
    high: float
    label: str
    zone: float = 0.0
    tone: str = ""
    """The class of what is said of it."""


@dataclass(frozen=True)
class Forest:
    """Ratios, one below the other."""

    axis: Axis
    rows: Sequence[Whisker]


@dataclass(frozen=True)
class Table:
    """The same in numbers. The head of a column has its unit; columns from `numbers` on hold numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: int = 1


@dataclass(frozen=True)
class Chart:
    """A drawing with all that it takes to read it.

    Args:
        id: unique on a page.
        title: what it shows.
        says: what there is to see in it, in a sentence.
        how: how to read it, in a sentence.
        drawing: the marks.
        table: the numbers.
        notes: what is left out of it, and why.
        legend: what the keys of parts mean, from 1.
    """

    id: str
    title: str
    says: str
    how: str
    drawing: Plot | Bars | Forest
    table: Table
    notes: Sequence[str] = ()
    legend: Sequence[str] = ()


@dataclass(frozen=True)
class Missing:
    """A chart that is not drawn."""

    title: str
    why: str
