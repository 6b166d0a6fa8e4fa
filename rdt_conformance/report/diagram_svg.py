"""A laid-out history drawn as inline SVG. Colours are classes, so that the page's style sheet decides on them."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from rdt_conformance.report.diagram import Bar, Column, Diagram, Row, is_marked, label
from rdt_conformance.words import count

ROW = 22
"""The height of a row."""
GUTTER = 92
"""Number and time, to the left of the first column."""
LANE = 14
"""From one lane to the next."""
BAR = 8
"""The width of a bar."""
LETTER = 7.0
"""The width of a letter."""
LONGEST = 46
"""Longer labels are cut; the whole text comes up when the mouse rests on it, and stands in the table."""


def as_svg(diagram: Diagram, title: str) -> Markup:
    """The diagram as an ``<svg>`` element; empty if nothing happened.

    Args:
        diagram: the layout.
        title: what a reader who cannot see it is told.
    """
    if not diagram.bars:
        return Markup()
    return _Drawing(diagram).svg(title)


class _Drawing:
    """Knows where everything lies."""

    def __init__(self, diagram: Diagram) -> None:
        self._diagram = diagram
        self._head = ROW * (1 + max(len(column.lanes) for column in diagram.columns)) + 14
        self._left: list[float] = []
        right: float = GUTTER
        for number in range(len(diagram.columns)):
            self._left.append(right)
            right += self._column_width(number)
        self._width = round(right)
        self._height = self._head + ROW * len(diagram.rows) + 10

    def svg(self, title: str) -> Markup:
        """All of it, from back to front."""
        parts = [*self._bands(), *self._lanes(), *self._arrows(), *self._bars(), *self._labels(), *self._heads()]
        return Markup(
            '<svg class="sequence" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">{}</svg>'
        ).format(title, self._width, self._height, self._width, self._height, Markup().join(parts))

    def _column_width(self, number: int) -> float:
        column = self._diagram.columns[number]
        of_lanes = len(column.lanes) * LANE
        labels = [
            len(_cut(label(row))) for row in self._diagram.rows if row.step and row.step.process == column.process
        ]
        heads = [len(_cut(text)) for text in (column.process, ", ".join(column.roles), *column.lanes)]
        return of_lanes + 10 + max([*labels, *heads]) * LETTER + 26

    def _x(self, column: int, lane: int) -> float:
        return self._left[column] + lane * LANE + BAR / 2

    def _y(self, row: int) -> float:
        return self._head + row * ROW

    def _text_x(self, column: int) -> float:
        return self._x(column, len(self._diagram.columns[column].lanes) - 1) + BAR / 2 + 7

    def _bands(self) -> Iterator[Markup]:
        for number, row in enumerate(self._diagram.rows):
            if is_marked(self._diagram, row):
                yield Markup('<rect class="mark" x="0" y="{}" width="{}" height="{}" rx="3"/>').format(
                    self._y(number), self._width, ROW
                )

    def _lanes(self) -> Iterator[Markup]:
        for number, column in enumerate(self._diagram.columns):
            for lane in range(len(column.lanes)):
                x, top = self._x(number, lane), self._lane_head(lane)
                yield Markup('<path class="lane" d="M{} {}V{}"/>').format(x, top, self._height - 6)

    def _lane_head(self, lane: int) -> int:
        return ROW * (1 + lane) + 14

    def _heads(self) -> Iterator[Markup]:
        for number, column in enumerate(self._diagram.columns):
            yield from self._head_of(number, column)

    def _head_of(self, number: int, column: Column) -> Iterator[Markup]:
        role = f" {', '.join(column.roles)}" if column.roles else ""
        yield Markup(
            '<text x="{}" y="14"><tspan class="process">{}</tspan><tspan class="quiet">{}</tspan></text>'
        ).format(self._left[number], _cut(column.process), _cut(role))
        text = self._text_x(number)
        for lane, name in enumerate(column.lanes):
            y = self._lane_head(lane)
            yield Markup('<path class="lane" d="M{} {}H{}"/><text class="quiet" x="{}" y="{}">{}</text>').format(
                self._x(number, lane), y, text - 3, text, y + 4, _cut(name)
            )

    def _arrows(self) -> Iterator[Markup]:
        for arrow in self._diagram.arrows:
            start, end = self._x(*arrow.source), self._x(*arrow.destination)
            y, towards = self._y(arrow.row) + ROW / 2, 1 if end > start else -1
            tip = end - towards * (BAR / 2 + 1)
            yield Markup('<path class="arrow" d="M{} {}H{}m{} -4l{} 4l{} 4"/>').format(
                start + towards * BAR / 2, y, tip, -towards * 6, towards * 6, -towards * 6
            )

    def _bars(self) -> Iterator[Markup]:
        for bar in self._diagram.bars:
            x, top = self._x(bar.column, bar.lane) - BAR / 2 + 3 * min(bar.depth, 3), self._y(bar.first) + 5
            bottom = self._y(bar.last) + ROW - 5
            yield Markup(
                '<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="2"><title>{}</title></rect>'
            ).format(_kind(bar), x, top, BAR, bottom - top, _told(bar))
            if bar.step.ended is None:
                yield Markup('<path class="{}" d="M{} {}l4 5l4 -5"/>').format(_kind(bar), x, bottom - 1)

    def _labels(self) -> Iterator[Markup]:
        for number, row in enumerate(self._diagram.rows):
            y = self._y(number) + ROW / 2 + 4
            if row.step is None:
                yield Markup('<text class="quiet" x="{}" y="{}">… {} left out …</text>').format(
                    GUTTER, y, count(row.left_out, "step")
                )
                continue
            if row.begins:
                yield Markup('<text class="quiet number" x="30" y="{}">{}</text>').format(y, row.step.number)
                yield Markup('<text class="quiet number" x="80" y="{}">{}</text>').format(
                    y, f"{row.step.at * 1000:.1f}"
                )
            if is_marked(self._diagram, row):
                yield Markup('<text class="flag" x="2" y="{}">▶</text>').format(y)
            yield self._label(row, y)

    def _label(self, row: Row, y: float) -> Markup:
        assert row.step is not None
        bar = self._diagram.bar_of(row.step)
        kind = "bad" if is_marked(self._diagram, row) else "call" if row.begins else "quiet"
        return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(
            kind, self._text_x(bar.column), y, _cut(label(row))
        )


def _kind(bar: Bar) -> str:
    return "bar failed" if bar.marked else "bar open" if bar.step.ended is None else "bar"


def _told(bar: Bar) -> str:
    step = bar.step
    took = "never ended" if step.ended is None else f"{(step.ended - step.at) * 1000:.1f} ms"
    outcome = f": {step.outcome}" if step.outcome else ""
    return f"{step.number}. {step.what} {step.obj_id} on {step.process} ({step.lane}), {took}{outcome}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
