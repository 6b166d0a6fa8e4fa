"""The charts of one run, and the table of all its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from rdt_conformance.bench.results import CellResult, Row
from rdt_conformance.report.charts import changes, costs, samples, transfers
from rdt_conformance.report.charts.marks import Chart, Missing, Table
from rdt_conformance.report.charts.measured import named, problem, share_of_limit

_LARGE_BYTES = 64 << 10
"""With less, what is told by the byte says nothing."""
_HEAD = (
    "benchmark", "cell", "engine", "contender", "samples", "verified cycles", "p50, µs", "p90, µs", "p99, µs",
    "goodput, GB/s", "of the fastest limit, %", "first use, µs", "processors, s/GiB", "copies held", "metadata, bytes",
    "times as fast is this transport", "95 % from", "to", "note",
)  # fmt: skip


def charts(cells: Sequence[CellResult]) -> list[Chart | Missing]:
    """Every chart that there could be, in the order of the page."""
    return [
        transfers.latency(cells),
        transfers.goodput(cells),
        transfers.tensors(cells),
        transfers.in_flight(cells),
        costs.stages(cells),
        transfers.whole_rdt(cells),
        *samples.distributions(cells),
        *samples.in_time(cells),
        costs.processors(cells),
        costs.copies(cells),
        *changes.peers(cells),
        changes.changes(cells),
    ]


def table(cells: Sequence[CellResult]) -> Table:
    """Every contender in every cell."""
    return Table(_HEAD, [line for cell in cells for line in _lines(cell)], numbers=4)


def _lines(cell: CellResult) -> list[list[str]]:
    where = [cell.benchmark.removeprefix("test_").replace("_", " "), cell.cell, cell.engine]
    if cell.why_not:
        return [[*where, "", *[""] * 14, f"not measured: {cell.why_not}"]]
    return [[*where, *_line(cell, row)] for row in cell.rows]


def _line(cell: CellResult, row: Row) -> list[str]:
    name = named(row)
    if why := problem(row):
        return [name, str(row.pairs), str(row.verified), *[""] * 12, f"no number: {why}"]
    large, share, speed = cell.nbytes >= _LARGE_BYTES, share_of_limit(cell, row), row.speed
    return [
        name,
        str(row.pairs),
        str(row.verified),
        *(_micro(row.percentiles.get(percent)) for percent in ("50", "90", "99")),
        f"{row.goodput / 1e9:.3f}" if large else "",
        f"{100 * share:.1f}" if large and share else "",
        _micro(row.cold),
        f"{row.cpu_per_gib:.3f}" if large else "",
        *(f"{row.counters[name]:.4g}" if name in row.counters else "" for name in ("copies", "metadata_bytes")),
        *(f"{value:.3f}" for value in ((speed.middle, speed.low, speed.high) if speed else ())),
        *([] if speed else ["", "", ""]),
        "",
    ]


def _micro(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"
