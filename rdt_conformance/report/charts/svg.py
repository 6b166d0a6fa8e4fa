"""Charts as inline SVG. Colours, dashes and fonts are classes, so that the page's style sheet decides on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from rdt_conformance.report.charts.marks import Bar, Bars, Chart, Forest, Plot, Point, Series, Whisker
from rdt_conformance.report.charts.scale import Axis

WIDTH = 440
HEIGHT = 290
"""Of a plot; what has rows is as high as they are."""
ROW = 25
"""The height of a row."""
BAR = 15
"""The height of a bar."""
TITLE, FOOT = 30, 42
"""What is kept free above and below the marks, for the titles of the axes."""
LETTER, BOLD = 6.1, 7.0
"""The width of a letter, in a font that is rather wide."""
LONGEST_LABEL, LONGEST_NAME = 20, 28
"""Longer ones are cut; the table has them whole."""
LABEL_GAP = 14
"""The least distance between two labels."""
LABEL_ROOM = 34
"""What a label beside a point takes; where points are closer, some go without."""
STYLES = 10
"""As many series can be told apart by colour, dash and marker; then they come again."""
_MARKERS = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
    "m-3 -3h6v6h-6z",
    "m0 -4l4 7h-8z",
    "m0 -4.5l4 4.5l-4 4.5l-4 -4.5z",
    "m-3 -3l6 6m0 -6l-6 6",
    "m-4 0h8m-4 -4v8",
    "m0 4l4 -7h-8z",
    "m-4 0h8",
    "m0 -4v8",
    "m-3.5 2l3.5 -5l3.5 5",
)
"""What is drawn from the middle of a point on."""
_DOTS = ("h.1", "m-2 0h4", "m0 -2v4", "m-1.5 -1.5l3 3")


def as_svg(chart: Chart) -> Markup:
    """The drawing of a chart as an ``<svg>`` element; its figure names it."""
    match chart.drawing:
        case Plot() as plot:
            height, parts = HEIGHT, _Plot(plot).parts()
        case Bars() as bars:
            height, parts = _height(len(bars.rows)), _bars(bars)
        case Forest() as forest:
            height, parts = _height(len(forest.rows)), _forest(forest)
    return Markup('<svg class="chart" role="img" aria-labelledby="{}" viewBox="0 0 {} {}">{}</svg>').format(
        f"{chart.id}-title", WIDTH, height, Markup().join(parts)
    )


def _height(rows: int) -> int:
    return TITLE + ROW * rows + FOOT - 14


class _Plot:
    """Knows where everything lies in a plot."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._left = 10 + max(_width(tick.label) for tick in plot.y.ticks)
        labels = [_width(_cut(each.name, LONGEST_LABEL), BOLD) for each in plot.series]
        self._right = WIDTH - 16 - max(labels)
        self._bottom = HEIGHT - FOOT

    def parts(self) -> Iterator[Markup]:
        """All of it, from back to front."""
        yield from self._axes()
        # What the page is about comes last, above the others.
        for each in reversed(self._plot.series):
            yield from self._series(each)
        yield from self._labels()

    def _x(self, value: float) -> float:
        return self._left + self._plot.x.at(value) * (self._right - self._left)

    def _y(self, value: float) -> float:
        return self._bottom - self._plot.y.at(value) * (self._bottom - TITLE)

    def _axes(self) -> Iterator[Markup]:
        for tick in self._plot.y.ticks:
            y = self._y(tick.value)
            yield Markup('<path class="grid" d="M{} {}H{}"/>').format(_n(self._left), _n(y), _n(self._right))
            yield _text(self._left - 6, y + 4, tick.label, "end")
        yield Markup('<path class="axis" d="M{} {}H{}"/>').format(_n(self._left), self._bottom, _n(self._right))
        for tick in self._plot.x.ticks:
            x = self._x(tick.value)
            yield Markup('<path class="axis" d="M{} {}v4"/>').format(_n(x), self._bottom)
            yield _text(x, self._bottom + 17, tick.label, "middle")
        yield _text(0, 13, f"↑ {self._plot.y.title}", "title")
        yield _text(self._right, HEIGHT - 6, f"{self._plot.x.title} →", "end title")

    def _series(self, series: Series) -> Iterator[Markup]:
        style = series.style % STYLES
        if self._plot.how == "dots":
            glyph = _DOTS[style % len(_DOTS)]
            drawn = "".join(f"M{_n(self._x(point.x))} {_n(self._y(point.y))}{glyph}" for point in series.points)
            yield Markup('<path class="dots s{}" d="{}"/>').format(style, drawn)
            return
        yield from self._band(series, style)
        sure = series.doubtful_from
        if sure is None:
            sure = len(series.points)
        for kind, points in (("line", series.points[:sure]), ("line doubtful", series.points[max(0, sure - 1) :])):
            if len(points) > 1:
                yield Markup('<path class="{} s{}" d="{}"/>').format(kind, style, self._path(points))
        marked = series.points
        if self._plot.how == "curves":
            marked = marked[5 + style :: 15]
        yield from (self._marker(point, style) for point in marked)
        taken = WIDTH + LABEL_ROOM
        for point in reversed(marked):
            if point.label and taken - self._x(point.x) >= LABEL_ROOM:
                taken = self._x(point.x)
                yield _text(taken, self._y(point.y) + 17, point.label, "middle value")

    def _band(self, series: Series, style: int) -> Iterator[Markup]:
        banded = [(p.x, p.low, p.high) for p in series.points if p.low is not None and p.high is not None]
        for x, low, high in banded:
            yield Markup('<path class="whisker s{}" d="M{} {}V{}"/>').format(
                style, _n(self._x(x)), _n(self._y(low)), _n(self._y(high))
            )
        if len(banded) > 1:
            there = [f"{_n(self._x(x))} {_n(self._y(high))}" for x, _, high in banded]
            back = [f"{_n(self._x(x))} {_n(self._y(low))}" for x, low, _ in reversed(banded)]
            yield Markup('<path class="band s{}" d="M{}z"/>').format(style, "L".join([*there, *back]))

    def _path(self, points: Sequence[Point]) -> str:
        return "M" + "L".join(f"{_n(self._x(point.x))} {_n(self._y(point.y))}" for point in points)

    def _marker(self, point: Point, style: int) -> Markup:
        x, y = self._x(point.x), self._y(point.y)
        told = Markup("<title>{}</title>").format(point.told) if point.told else ""
        return Markup('<path class="marker s{}" d="M{} {}{}">{}</path>').format(
            style, _n(x), _n(y), _MARKERS[style], told
        )

    def _labels(self) -> Iterator[Markup]:
        ends = [(self._end_of(each), each) for each in self._plot.series]
        places = _apart([y for (_, y), _ in ends], TITLE, self._bottom)
        for ((x, y), series), place in zip(ends, places, strict=True):
            style, start = series.style % STYLES, self._right + 5
            yield Markup('<path class="leader s{}" d="M{} {}L{} {}h5"/>').format(
                style, _n(x), _n(y), _n(start), _n(place)
            )
            yield _text(start + 8, place + 4, _cut(series.name, LONGEST_LABEL), f"name s{style}")

    def _end_of(self, series: Series) -> tuple[float, float]:
        """Where the leader to the label begins."""
        if self._plot.how == "dots":
            ordered = sorted(point.y for point in series.points)
            return self._right, self._y(ordered[len(ordered) // 2])
        last = series.points[-1]
        return self._x(last.x), self._y(last.y)


def _apart(places: Sequence[float], top: float, bottom: float) -> list[float]:
    """The same places in the same order, no two closer than `LABEL_GAP` if there is room."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = dict.fromkeys(order, 0.0)
    least = top
    for number in order:
        moved[number] = least = max(places[number], least)
        least += LABEL_GAP
    most = bottom
    for number in reversed(order):
        moved[number] = most = min(moved[number], most)
        most -= LABEL_GAP
    return [moved[number] for number in range(len(places))]


class _Rows:
    """Knows where everything lies in a chart of rows."""

    def __init__(self, axis: Axis, names: Sequence[str], labels: Sequence[str]) -> None:
        self._axis = axis
        self.left = 10 + max(_width(_cut(name, LONGEST_NAME)) for name in names)
        self.right = WIDTH - 10 - max(_width(label, BOLD) for label in labels)
        self._names = names
        self._labels = labels
        self._bottom = TITLE - 8 + ROW * len(names)

    def x(self, value: float) -> float:
        """Where a value lies."""
        return self.left + self._axis.at(value) * (self.right - self.left)

    def middle(self, row: int) -> float:
        """The middle of a row."""
        return TITLE - 8 + ROW * (row + 0.5)

    def frame(self) -> Iterator[Markup]:
        """Axis, names and labels."""
        for tick in self._axis.ticks:
            x = _n(self.x(tick.value))
            yield Markup('<path class="grid" d="M{} {}V{}"/>').format(x, TITLE - 8, self._bottom)
            yield _text(self.x(tick.value), self._bottom + 15, tick.label, "middle")
        yield _text(self.right, 13, f"{self._axis.title} →", "end title")
        for row, (name, label) in enumerate(zip(self._names, self._labels, strict=True)):
            y = self.middle(row) + 4
            yield _text(self.left - 6, y, _cut(name, LONGEST_NAME), "end")
            yield _text(self.right + 8, y, label, "value")


def _bars(bars: Bars) -> Iterator[Markup]:
    rows = _Rows(bars.axis, [row.name for row in bars.rows], [row.label for row in bars.rows])
    yield from rows.frame()
    for number, row in enumerate(bars.rows):
        yield from _bar(rows, number, row)


def _bar(rows: _Rows, number: int, row: Bar) -> Iterator[Markup]:
    top, start = rows.middle(number) - BAR / 2, 0.0
    for part in row.parts:
        left, right = rows.x(start), rows.x(start + part.value)
        told = Markup("<title>{}</title>").format(part.told) if part.told else ""
        yield Markup('<rect class="bar k{}" x="{}" y="{}" width="{}" height="{}">{}</rect>').format(
            part.key, _n(left), _n(top), _n(max(0.5, right - left)), BAR, told
        )
        if part.key and right - left > 11:
            yield _text((left + right) / 2, rows.middle(number) + 4, str(part.key), "middle key")
        start += part.value


def _forest(forest: Forest) -> Iterator[Markup]:
    rows = _Rows(forest.axis, [row.name for row in forest.rows], [row.label for row in forest.rows])
    for number, row in enumerate(forest.rows):
        if row.zone:
            left, right = rows.x(1 / (1 + row.zone)), rows.x(1 + row.zone)
            yield Markup('<rect class="zone" x="{}" y="{}" width="{}" height="{}"/>').format(
                _n(left), _n(rows.middle(number) - ROW / 2), _n(right - left), ROW
            )
    yield from rows.frame()
    yield Markup('<path class="one" d="M{} {}v{}"/>').format(_n(rows.x(1)), TITLE - 8, ROW * len(forest.rows))
    for number, row in enumerate(forest.rows):
        yield _whisker(rows, number, row)


def _whisker(rows: _Rows, number: int, row: Whisker) -> Markup:
    y, low, middle, high = rows.middle(number), rows.x(row.low), rows.x(row.middle), rows.x(row.high)
    return Markup(
        '<path class="interval {tone}" d="M{low} {top}v6m0 -3H{high}m0 -3v6"/>'
        '<rect class="middle-of {tone}" x="{left}" y="{upper}" width="7" height="7"><title>{told}</title></rect>'
    ).format(
        tone=row.tone,
        low=_n(low),
        top=_n(y - 3),
        high=_n(high),
        left=_n(middle - 3.5),
        upper=_n(y - 3.5),
        told=f"{row.name}: {row.middle:.3f} [{row.low:.3f}, {row.high:.3f}]",
    )


def _text(x: float, y: float, text: str, kind: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, _n(x), _n(y), text)


def _n(number: float) -> str:
    """A coordinate, as short as the eye allows."""
    return f"{number:.1f}".removesuffix(".0")


def _width(text: str, letter: float = LETTER) -> float:
    return len(text) * letter


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
