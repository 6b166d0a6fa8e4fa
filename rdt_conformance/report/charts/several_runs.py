"""Several runs on one chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rdt_conformance.bench.results import BETWEEN_GPUS, CellResult, Row
from rdt_conformance.report.charts import scale
from rdt_conformance.report.charts.marks import Chart, Missing, Plot
from rdt_conformance.report.charts.measured import Lines, Value, lines, share_of_limit
from rdt_conformance.report.charts.scale import Say
from rdt_conformance.report.charts.transfers import COUNTS, SIZES, of
from rdt_conformance.words import in_bytes

Run = tuple[str, Sequence[CellResult]]
"""What tells a run from the others, and its cells."""
_TIME = "time until the data are there, p50"
_PAYLOAD: tuple[str, Say] = ("payload", lambda size: in_bytes(int(size)))
_NOBODY = "none of the runs measured it with exact data"


def charts(runs: Sequence[Run], *, alike: bool) -> list[Chart | Missing]:
    """Every chart that there could be, in the order of the page.

    Args:
        runs: those that are compared.
        alike: all took place on machines of the same kind, with the same versions.
    """
    return [_latency(runs, alike), _share(runs), _tensors(runs, alike)]


def _latency(runs: Sequence[Run], alike: bool) -> Chart | Missing:
    title, drawn = "Latency by size", _lines(_own(runs, SIZES), _by_size, _median, _PAYLOAD, ("p50", scale.in_seconds))
    if not drawn.series:
        return Missing(title, _NOBODY)
    return Chart(
        "latency",
        title,
        _range(drawn, scale.in_seconds),
        f"Lower is faster. {_caution(alike)}",
        Plot(scale.sizes("payload", drawn.xs), scale.seconds(_TIME, drawn.ys), drawn.series),
        drawn.table,
        drawn.notes,
    )


def _share(runs: Sequence[Run]) -> Chart | Missing:
    title = "Share of the fastest limit of the machine, by size"
    drawn = _lines(_own(runs, SIZES), _by_size, _share_of_own, _PAYLOAD, ("share", scale.in_percent))
    if not drawn.series:
        return Missing(title, _NOBODY)
    return Chart(
        "share",
        title,
        _range(drawn, scale.in_percent),
        "Higher is better. Each run measured the limits of its machine in turn with its transport: shares of different "
        "runs can be compared better than times can.",
        Plot(scale.sizes("payload", drawn.xs), scale.shares("speed, as a share of the limit", drawn.ys), drawn.series),
        drawn.table,
    )


def _tensors(runs: Sequence[Run], alike: bool) -> Chart | Missing:
    title, found = "Latency by number of tensors", _own(runs, COUNTS)
    say_x = ("tensors", lambda number: f"{number:,.0f}")
    drawn = _lines(found, lambda cell: cell.tensors, _median, say_x, ("p50", scale.in_seconds))
    if len(set(drawn.xs)) < 2:
        return Missing(title, "fewer than two numbers of tensors were measured with exact data")
    together = in_bytes(found[0].nbytes)
    return Chart(
        "tensors",
        title,
        f"{together} in all, in more and more tensors.",
        f"Lower is faster. {_caution(alike)}",
        Plot(scale.counts(f"tensors, {together} together", drawn.xs), scale.seconds(_TIME, drawn.ys), drawn.series),
        drawn.table,
        drawn.notes,
    )


def _lines(
    cells: Sequence[CellResult],
    x: Callable[[CellResult], float],
    y: Value,
    say_x: tuple[str, Say],
    say_y: tuple[str, Say],
) -> Lines:
    drawn = lines(cells, x, y, say_x=say_x, say_y=say_y, name=lambda cell, row: row.name)
    # The first style stands out, and none of the runs should.
    return replace(drawn, series=[replace(each, style=each.style + 1) for each in drawn.series])


def _by_size(cell: CellResult) -> float:
    return cell.nbytes


def _median(_: CellResult, row: Row) -> float | None:
    return row.median if row.role == "transport" else None


def _share_of_own(cell: CellResult, row: Row) -> float | None:
    return share_of_limit(cell, row) if row.role == "transport" else None


def _range(drawn: Lines, say: Say) -> str:
    last = max(drawn.xs)
    ends = sorted((p.y, each.name) for each in drawn.series for p in each.points if p.x == last)
    (least, lowest), (most, highest) = ends[0], ends[-1]
    return f"At {in_bytes(int(last))} from {say(least)} ({lowest}) to {say(most)} ({highest})."


def _own(runs: Sequence[Run], benchmark: str) -> list[CellResult]:
    """The cells of a benchmark with the transport, which has the name of its run, and the limits of the machine."""
    return [
        replace(
            cell,
            rows=[
                replace(row, name=f"{name}{BETWEEN_GPUS if cell.apart else ''}") if row.role == "transport" else row
                for row in cell.rows
                if row.role in ("transport", "ceiling")
            ],
        )
        for name, cells in runs
        for cell in of(cells, benchmark)
    ]


def _caution(alike: bool) -> str:
    if alike:
        return "These are runs at different times on machines of the same kind; small differences say nothing."
    return "These runs took place on machines that differ: compare the shapes of the lines, and not their heights."
