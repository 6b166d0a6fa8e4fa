"""Where the time goes, and what else a transfer takes: processors and memory."""

from __future__ import annotations

from collections.abc import Sequence

from rdt_conformance.bench.results import CellResult, Row
from rdt_conformance.report.charts import scale
from rdt_conformance.report.charts.marks import Bar, Bars, Chart, Missing, Part, Table
from rdt_conformance.report.charts.measured import named, own, usable
from rdt_conformance.report.charts.transfers import COUNTS, SIZES, of
from rdt_conformance.words import in_bytes


def called(cell: CellResult) -> str:
    """A cell among those of other benchmarks."""
    plain = cell.benchmark in (SIZES, COUNTS)
    return cell.cell if plain else f"{cell.cell}, {cell.benchmark.removeprefix('test_').replace('_', ' ')}"


def stages(cells: Sequence[CellResult]) -> Chart | Missing:
    """The parts of a cycle in each cell."""
    title = "Where the time of a cycle goes"
    found = [(cell, row) for cell in cells if (row := own(cell)) and sum(row.stages.values()) > 0]
    if not found:
        return Missing(title, "no cell was measured with exact data")
    names = list(dict.fromkeys(name for _, row in found for name in row.stages))
    rows = []
    for cell, row in found:
        whole = sum(row.stages.values())
        parts = [
            Part(took / whole, names.index(name) + 1, f"{_plain(name)}: {scale.in_seconds(took)}")
            for name, took in row.stages.items()
            if took > 0
        ]
        rows.append(Bar(called(cell), parts, scale.in_seconds(whole)))
    cell, row = max(found, key=lambda each: (each[0].benchmark == SIZES, each[0].nbytes))
    took, most = max((took, name) for name, took in row.stages.items())
    part = took / sum(row.stages.values())
    return Chart(
        "stages",
        title,
        f"At {called(cell)}, {scale.in_percent(part)} of it is {_plain(most)}.",
        "Each bar is one cycle, from the source filling its tensors to the object being freed; the figures in it are "
        "those of the list below, the time at its end is all of it. Stages are at their medians.",
        Bars(scale.linear("part of the cycle", 1.0, scale.in_percent), rows),
        Table(
            ["cell", "samples", *map(_plain, names)],
            [[called(cell), str(len(row.samples)), *_times(row, names)] for cell, row in found],
        ),
        legend=[_plain(name) for name in names],
    )


def processors(cells: Sequence[CellResult]) -> Chart | Missing:
    """What moving the largest payload takes of the processors, for each contender."""
    title = "Processor time for a GiB"
    found = [cell for cell in of(cells, SIZES) if (row := own(cell)) and row.cpu_per_gib > 0]
    if not found:
        return Missing(title, "no cell has processor time of this transport")
    cell = max(found, key=lambda each: each.nbytes)
    rows = [row for row in usable(cell) if row.cpu_per_gib > 0]
    ours = next(row for row in rows if row.role == "transport")
    return Chart(
        "processors",
        title,
        f"{ours.cpu_per_gib:.2g} s for each GiB, in pieces of {in_bytes(cell.nbytes)}.",
        "Shorter is cheaper. Seconds of processor time of both processes; with two at work it can be more than the "
        "time that passed.",
        Bars(
            scale.linear("seconds of processor time for a GiB", max(row.cpu_per_gib for row in rows)),
            [Bar(named(row), [Part(row.cpu_per_gib)], f"{row.cpu_per_gib:.2g} s") for row in rows],
        ),
        Table(
            ["contender", "samples", "seconds for a GiB"],
            [[named(row), str(len(row.samples)), f"{row.cpu_per_gib:.3g}"] for row in rows],
        ),
    )


def copies(cells: Sequence[CellResult]) -> Chart | Missing:
    """How much memory a transfer takes at its peak, in each cell that is large enough to tell."""
    title = "Copies held at the peak"
    found = [(cell, row) for cell in cells if (row := own(cell)) and "copies" in row.counters]
    if not found:
        return Missing(title, "they are counted in cells of 16 MiB or more with exact data, and there is none")
    counted = [(called(cell), max(0.0, row.counters["copies"])) for cell, row in found]
    return Chart(
        "copies",
        title,
        f"{max(held for _, held in counted):.1f} payloads at most.",
        "Shorter is better. The peak of memory of both processes, in payloads, beyond the tensors that are sent and "
        "target buffers; what is shared counts in each process that has it mapped.",
        Bars(
            scale.linear("payloads", max(1.0, *(held for _, held in counted))),
            [Bar(name, [Part(held)], f"{held:.1f}") for name, held in counted],
        ),
        Table(["cell", "payloads held"], [[name, f"{held:.2f}"] for name, held in counted]),
    )


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _times(row: Row, names: Sequence[str]) -> list[str]:
    return [scale.in_seconds(row.stages[name]) if name in row.stages else "-" for name in names]
