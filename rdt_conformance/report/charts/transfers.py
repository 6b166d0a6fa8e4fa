"""How long a transfer takes, and how much it moves: by size, by number of tensors, and by what is in flight."""

from __future__ import annotations

from collections.abc import Sequence

from rdt_conformance.bench.results import CellResult, Row
from rdt_conformance.report.charts import scale
from rdt_conformance.report.charts.marks import Chart, Missing, Plot
from rdt_conformance.report.charts.measured import fastest_limit, lines, own, share_of_limit
from rdt_conformance.words import in_bytes

SIZES, COUNTS, IN_FLIGHT, WHOLE = (
    "test_single_tensor",
    "test_number_of_tensors",
    "test_pipelined_gets",
    "test_whole_rdt",
)
"""The benchmarks that these charts are of."""
_TIME = ("p50", scale.in_seconds)
_PAYLOAD = ("payload", lambda size: in_bytes(int(size)))
_FULL = "pytest --benchmark-only measures them"


def of(cells: Sequence[CellResult], benchmark: str) -> list[CellResult]:
    """The cells of one benchmark. Those between GPUs would be another line: they are left out if not all are."""
    found = [cell for cell in cells if cell.benchmark == benchmark]
    return [cell for cell in found if not cell.apart] or found


def median(_: CellResult, row: Row) -> float:
    """What is compared: the time until the data are there, at the median."""
    return row.median


def latency(cells: Sequence[CellResult]) -> Chart | Missing:
    """Time by size."""
    title, sizes = "Latency by size", of(cells, SIZES)
    found = [(cell, row) for cell in sizes if (row := own(cell))]
    if not found:
        return Missing(title, "no size was measured with exact data")
    drawn = lines(sizes, lambda cell: cell.nbytes, median, say_x=_PAYLOAD, say_y=_TIME, band=True)
    plot = Plot(
        scale.sizes("payload", drawn.xs), scale.seconds("time until the data are there, p50", drawn.ys), drawn.series
    )
    return Chart(
        "latency",
        title,
        f"{_at(found[0])}, {_at(found[-1])}.",
        "Lower is faster. A flat line is a fixed price, a steady slope is time by the byte. "
        "The band holds the middle half of the samples, where forty or more were taken.",
        plot,
        drawn.table,
        drawn.notes,
    )


def goodput(cells: Sequence[CellResult]) -> Chart | Missing:
    """Bytes in a second by size, beside what the machine can do."""
    title, sizes = "Goodput by size, and what the machine can do", of(cells, SIZES)
    found = [(cell, row) for cell in sizes if (row := own(cell))]
    if not found:
        return Missing(title, "no size was measured with exact data")
    drawn = lines(
        sizes,
        lambda cell: cell.nbytes,
        lambda _, row: row.goodput,
        say_x=_PAYLOAD,
        say_y=("goodput", scale.in_rate),
        mark=share_of_limit,
    )
    cell, row = max(found, key=lambda each: each[1].goodput)
    limit, share = fastest_limit(cell), share_of_limit(cell, row)
    part = f", {scale.in_percent(share)} of {limit.name}" if limit and share else ""
    plot = Plot(scale.sizes("payload", drawn.xs), scale.rates("payload moved in a second", drawn.ys), drawn.series)
    return Chart(
        "goodput",
        title,
        f"At most {scale.in_rate(row.goodput)}, at {in_bytes(cell.nbytes)}{part}.",
        "Higher is better. The other lines are what this machine does without a transport, measured in the same turns; "
        "the figure at a marker is the share of the fastest of them that moves bytes (first touch moves none).",
        plot,
        drawn.table,
    )


def tensors(cells: Sequence[CellResult]) -> Chart | Missing:
    """The same bytes in more and more tensors."""
    title, counts = "Latency by number of tensors", of(cells, COUNTS)
    sizes = {cell.nbytes for cell in counts}
    whole = [] if any(cell.tensors == 1 for cell in counts) else [c for c in of(cells, SIZES) if c.nbytes in sizes]
    found = [(cell, row) for cell in (*whole, *counts) if (row := own(cell))]
    if len({cell.tensors for cell, _ in found}) < 2:
        return Missing(title, f"fewer than two numbers of tensors were measured with exact data; {_FULL}")
    drawn = lines(
        [*whole, *counts],
        lambda cell: cell.tensors,
        median,
        say_x=("tensors", lambda number: f"{number:,.0f}"),
        say_y=_TIME,
        band=True,
    )
    (first, one), (last, many) = found[0], found[-1]
    each = (many.median - one.median) / (last.tensors - first.tensors)
    more = f"each further one takes {scale.in_seconds(each)}" if each > 0 else "more tensors take no longer"
    plot = Plot(
        scale.counts(f"tensors, {in_bytes(first.nbytes)} together", drawn.xs),
        scale.seconds("time until the data are there, p50", drawn.ys),
        drawn.series,
    )
    return Chart(
        "tensors",
        title,
        f"From {first.tensors:,} to {last.tensors:,} tensors of {in_bytes(last.nbytes)} together, {more}.",
        "Lower is faster. The bytes are the same everywhere: what rises is the price of describing and registering. "
        "The limits of the machine move them in one piece.",
        plot,
        drawn.table,
        drawn.notes,
    )


def in_flight(cells: Sequence[CellResult]) -> Chart | Missing:
    """Bytes in a second by objects that are fetched together."""
    title, gets = "Goodput by objects in flight", of(cells, IN_FLIGHT)
    found = [(cell, row) for cell in gets if (row := own(cell))]
    if len(found) < 2:
        reasons = {cell.why_not for cell in gets if cell.why_not}
        return Missing(title, " / ".join(sorted(reasons)) or f"several gets at a time were not measured; {_FULL}")
    drawn = lines(
        gets,
        lambda cell: cell.objects,
        lambda _, row: row.goodput,
        say_x=("in flight", lambda number: f"{number:,.0f}"),
        say_y=("goodput", scale.in_rate),
    )
    (first, alone), (last, together) = found[0], found[-1]
    plot = Plot(
        scale.counts(f"objects of {in_bytes(first.nbytes // max(1, first.objects))} in flight", drawn.xs),
        scale.rates("payload moved in a second", drawn.ys),
        drawn.series,
    )
    return Chart(
        "in-flight",
        title,
        f"{last.objects} at a time move {together.goodput / alone.goodput:.1f} times as much in a second as "
        f"{first.objects} at a time.",
        "Higher is better. It rises if fetches overlap, or if a fixed price is paid once for all; it is flat if they "
        "wait for each other. The limits of the machine move all of it in one piece.",
        plot,
        drawn.table,
        drawn.notes,
    )


def whole_rdt(cells: Sequence[CellResult]) -> Chart | Missing:
    """The time of whole RDT, one way and another, on each engine."""
    title, ways = "Whole RDT by size", of(cells, WHOLE)
    found = [(cell, row) for cell in ways if (row := own(cell))]
    if not found:
        return Missing(title, f"what RDT itself takes was not measured; {_FULL}")
    largest = max(cell.nbytes for cell, _ in found)
    times = [f"{scale.in_seconds(row.median)} on {cell.engine}" for cell, row in found if cell.nbytes == largest]
    drawn = lines(
        ways,
        lambda cell: cell.nbytes,
        median,
        say_x=_PAYLOAD,
        say_y=_TIME,
        name=lambda cell, row: f"{cell.engine}: {row.name}",
    )
    return Chart(
        "whole-rdt",
        title,
        f"At {in_bytes(largest)}, {', '.join(times)}.",
        "Lower is faster. From the task that returns tensors to the task that has them, with all that RDT does.",
        Plot(scale.sizes("payload", drawn.xs), scale.seconds("from task to task, p50", drawn.ys), drawn.series),
        drawn.table,
        drawn.notes,
    )


def _at(found: tuple[CellResult, Row]) -> str:
    cell, row = found
    return f"{scale.in_seconds(row.median)} for {in_bytes(cell.nbytes)}"
