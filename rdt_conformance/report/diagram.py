"""A history as a sequence diagram: laid out here, drawn as text here too, and as SVG in `diagram_svg`.

Time flows down, one row for each thing that happens. Each process is a column, each of its lanes a line in it, each
call a bar on that line from the row where it begins to the row where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rdt_conformance.report.steps_shown import steps_shown
from rdt_conformance.results import Failure, Step
from rdt_conformance.words import count

SHORT = {
    "extract_tensor_transport_metadata": "extract",
    "get_communicator_metadata": "communicator",
    "send_multiple_tensors": "send",
    "recv_multiple_tensors": "recv",
    "fetch_multiple_tensors": "fetch",
    "wait_fetch_complete": "wait",
    "abort_transport": "abort",
    "actor_has_tensor_transport": "has transport",
}
"""What the calls of the interface are called in a diagram, where room is scarce."""

_ROLES = {
    "source": ("extract_tensor_transport_metadata", "send_multiple_tensors"),
    "owner": ("get_communicator_metadata",),
    "destination": ("recv_multiple_tensors", "fetch_multiple_tensors", "wait_fetch_complete"),
}
_DULL = ("extract_tensor_transport_metadata", "get_communicator_metadata", "actor_has_tensor_transport")
"""Their results are of the same type every time."""
_ARRIVING = ("recv_multiple_tensors", "fetch_multiple_tensors")
_OF_DATA = re.compile(r"\b(arrived|received)\b")
_OF_A_WAIT = re.compile(r"\btimeout of ([\d.]+) s\b")
_LANES = ("main", "_ray_system", "_ray_system_error")
"""Ray's, in this order; others come after them."""


@dataclass(frozen=True)
class Column:
    """One process."""

    process: str
    roles: tuple[str, ...]
    """What it was in the transfers: source, owner, destination."""
    lanes: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One thing that happens; a call that has its time to itself begins and ends in one row."""

    step: Step | None
    """None for steps that are left out."""
    begins: bool = False
    ends: bool = False
    left_out: int = 0
    """How many steps are not shown here."""


@dataclass(frozen=True)
class Bar:
    """One call, from row to row."""

    step: Step
    column: int
    lane: int
    first: int
    last: int
    marked: bool
    """It is the step at which the failure was seen."""
    depth: int
    """How many calls of the same lane it began in."""


@dataclass(frozen=True)
class Arrow:
    """Where the object of a receive came from; drawn in the row in which that begins."""

    row: int
    source: tuple[int, int]
    """Column and lane."""
    destination: tuple[int, int]


@dataclass(frozen=True)
class Diagram:
    """A history with a place for everything in it."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    arrows: tuple[Arrow, ...]

    def bar_of(self, step: Step) -> Bar:
        """The bar of a step that is shown."""
        return next(bar for bar in self.bars if bar.step is step)


def draw(history: Sequence[Step], marked: int | None = None) -> Diagram:
    """Lay out a history.

    Args:
        history: the steps, oldest first.
        marked: the number of the step to mark.
    """
    shown = steps_shown(history, marked)
    columns = _columns([step for step in shown if isinstance(step, Step)])
    rows = tuple(_rows(shown))
    bars = tuple(_bars(rows, columns, marked))
    return Diagram(columns, rows, bars, tuple(_arrows(bars)))


def failing_step(failure: Failure) -> int | None:
    """The number of the step at which a failure was seen, if it speaks of one that raised, is stuck or brought data.

    Nobody can say which step it was that left files behind, for one.
    """
    told, history = failure.happened, failure.history
    raised = [step for step in history if step.outcome.startswith("raised") and step.outcome in told]
    stuck = [step for step in history if step.ended is None and f"on {step.process} " in told]
    named = [step for step in stuck if told.startswith(f"{call(step).partition('(')[0].split()[0]} on ")]
    waits = [f"wait_fetch_complete(timeout={seconds})" for seconds in _OF_A_WAIT.findall(told)]
    waited = [step for step in history if step.what in waits]
    arrived = [step for step in history if _OF_DATA.search(told) and _name(step) in _ROLES["destination"]]
    candidates = raised or (failure.stacks and (named or stuck)) or waited or arrived
    return candidates[-1].number if candidates else None


def call(step: Step) -> str:
    """``recv obj1``: the call in few words."""
    name, paren, rest = step.what.partition("(")
    arguments = "" if rest == ")" else f"{paren}{rest}"
    return f"{SHORT.get(name, name)}{arguments} {step.obj_id}".rstrip()


def outcome(step: Step) -> str:
    """What came of a step, in few words; empty if nothing special did."""
    if step.ended is None:
        return "… never ended"
    if step.outcome.startswith("raised "):
        return f"✗ {step.outcome.removeprefix('raised ').partition(':')[0]}"
    dull = step.outcome in ("", "ok", "returned") or _name(step) in _DULL
    return "" if dull else f"→ {step.outcome}"


def label(row: Row) -> str:
    """What stands beside the bar in a row."""
    if row.step is None:
        return ""
    parts = [call(row.step) if row.begins else f"{call(row.step)} ends", outcome(row.step) if _tells(row) else ""]
    return " ".join(filter(None, parts))


def is_marked(diagram: Diagram, row: Row) -> bool:
    """Whether it is in this row that the failure was seen."""
    return row.step is not None and diagram.bar_of(row.step).marked and _tells(row)


def _name(step: Step) -> str:
    """The call without what is told of its arguments."""
    return step.what.partition("(")[0]


def _tells(row: Row) -> bool:
    """Whether the outcome belongs into this row: where the call ends, or where one begins that never does."""
    return row.ends or (row.step is not None and row.step.ended is None)


def _columns(steps: Sequence[Step]) -> tuple[Column, ...]:
    """Sources to the left, the driver and owners in the middle, destinations to the right."""
    lanes: dict[str, list[str]] = {}
    roles: dict[str, set[str]] = {}
    for step in steps:
        known = lanes.setdefault(step.process, [])
        if step.lane not in known:
            known.append(step.lane)
        name = _name(step)
        roles.setdefault(step.process, set()).update(role for role, calls in _ROLES.items() if name in calls)

    def place(process: str) -> int:
        return 0 if "source" in roles[process] else 1 if process == "driver" or "owner" in roles[process] else 2

    return tuple(
        Column(
            process,
            tuple(role for role in _ROLES if role in roles[process]),
            tuple(sorted(lanes[process], key=_lane_order)),
        )
        for process in sorted(lanes, key=place)
    )


def _lane_order(lane: str) -> int:
    return _LANES.index(lane) if lane in _LANES else len(_LANES)


def _rows(shown: Sequence[Step | int]) -> Iterator[Row]:
    steps = [step for step in shown if isinstance(step, Step)]
    before = {after.number: gap for gap, after in pairwise(shown) if isinstance(gap, int) and isinstance(after, Step)}
    ends = [(step.ended, 0, number, step) for number, step in enumerate(steps) if step.ended is not None]
    begins = [(step.at, 1, number, step) for number, step in enumerate(steps)]
    events = sorted([*begins, *ends], key=lambda event: (max(event[0], event[3].at), event[2], -event[1]))
    position = 0
    while position < len(events):
        _, begins_here, _, step = events[position]
        following = events[position + 1] if position + 1 < len(events) else None
        at_once = bool(begins_here) and following is not None and following[3] is step
        if begins_here and step.number in before:
            yield Row(None, left_out=before[step.number])
        yield Row(step, begins=bool(begins_here), ends=at_once or not begins_here)
        position += 2 if at_once else 1
    if shown and isinstance(shown[-1], int):
        yield Row(None, left_out=shown[-1])


def _bars(rows: Sequence[Row], columns: Sequence[Column], marked: int | None) -> list[Bar]:
    index = {column.process: number for number, column in enumerate(columns)}
    last = {id(row.step): number for number, row in enumerate(rows) if row.ends}
    drawn: list[Bar] = []
    for number, row in enumerate(rows):
        if row.step is not None and row.begins:
            column = index[row.step.process]
            lane = columns[column].lanes.index(row.step.lane)
            around = [bar for bar in drawn if (bar.column, bar.lane) == (column, lane) and bar.last > number]
            until = last.get(id(row.step), len(rows) - 1)
            drawn.append(Bar(row.step, column, lane, number, until, row.step.number == marked, len(around)))
    return drawn


def _arrows(bars: Sequence[Bar]) -> Iterator[Arrow]:
    """From where an object was sent, or else where it was extracted, to where it is received."""
    came_from: dict[str, Bar] = {}
    for bar in bars:
        name = _name(bar.step)
        if name in _ROLES["source"]:
            came_from[bar.step.obj_id] = bar
        source = came_from.get(bar.step.obj_id)
        if name in _ARRIVING and source is not None and source.column != bar.column:
            yield Arrow(bar.first, (source.column, source.lane), (bar.column, bar.lane))


# --- as text ----------------------------------------------------------------------------------------------------------

_GUTTER = 15
"""Mark, number and time."""


def as_text(diagram: Diagram) -> list[str]:
    """The diagram in characters, one line for each row, under a head that names processes and lanes."""
    if not diagram.bars:
        return []
    widths = [_width(diagram, number) for number in range(len(diagram.columns))]
    lines = [" " * _GUTTER + "".join(_title(c).ljust(w) for c, w in zip(diagram.columns, widths, strict=True))]
    for depth in range(max(len(column.lanes) for column in diagram.columns)):
        cells = (_lane_head(c.lanes, depth).ljust(w) for c, w in zip(diagram.columns, widths, strict=True))
        lines.append(" " * _GUTTER + "".join(cells))
    lines += [_line(diagram, number, row, widths) for number, row in enumerate(diagram.rows)]
    return [line.rstrip() for line in lines]


def _title(column: Column) -> str:
    return f"{column.process} ({', '.join(column.roles)})" if column.roles else column.process


def _lane_head(lanes: Sequence[str], depth: int) -> str:
    """The name of one lane, with a line from it down to where the lane runs; those of the earlier ones pass it."""
    if depth >= len(lanes):
        return "│ " * len(lanes)
    return "│ " * depth + "┌─" + "──" * (len(lanes) - depth - 1) + f" {lanes[depth]}"


def _width(diagram: Diagram, column: int) -> int:
    lanes = diagram.columns[column].lanes
    process = diagram.columns[column].process
    labels = [len(label(row)) for row in diagram.rows if row.step is not None and row.step.process == process]
    heads = [len(_title(diagram.columns[column])), *(2 * len(lanes) + 1 + len(lane) for lane in lanes)]
    return max(2 * len(lanes) + max(labels, default=0), *heads) + 3


def _line(diagram: Diagram, number: int, row: Row, widths: Sequence[int]) -> str:
    if row.step is None:
        return f"{'':{_GUTTER}}… {count(row.left_out, 'step')} left out"
    marked = is_marked(diagram, row)
    at = f"{row.step.at * 1000:.1f}" if row.begins else ""
    gutter = f"{'▶' if marked else ' '}{row.step.number if row.begins else '':>3} {at:>8}".ljust(_GUTTER)
    cells = [_cell(diagram, number, row, column).ljust(width) for column, width in enumerate(widths)]
    return gutter + "".join(cells)


def _cell(diagram: Diagram, number: int, row: Row, column: int) -> str:
    lanes = ["│"] * len(diagram.columns[column].lanes)
    for bar in diagram.bars:
        if bar.column == column and bar.first <= number <= bar.last:
            lanes[bar.lane] = _piece(bar, number)
    own = row.step is not None and row.step.process == diagram.columns[column].process
    return " ".join(lanes) + (f" {label(row)}" if own else "")


def _piece(bar: Bar, number: int) -> str:
    if bar.first == bar.last:
        return "■"
    if number == bar.first:
        return "┏"
    return "┗" if number == bar.last and bar.step.ended is not None else "┃"
