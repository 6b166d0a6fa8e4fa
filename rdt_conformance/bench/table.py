"""The benchmarks as a section of pytest's terminal summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdt_conformance.bench.loop import STAGES
from rdt_conformance.bench.results import CellResult, Row
from rdt_conformance.bench.statistics import Interval, Verdict
from rdt_conformance.words import in_time

Line = tuple[str, dict[str, bool]]
"""Text without its line end, and the markup for the terminal."""

_LARGE_BYTES = 64 << 10
"""With less, what is told by the byte says nothing."""

COLOURS = {Verdict.WORSE: {"red": True}, Verdict.BETTER: {"green": True}, Verdict.INCONCLUSIVE: {"yellow": True}}


def lines(results: Sequence[CellResult]) -> Iterator[Line]:
    """Every cell: what the transport does in it, in relation to what the others do, and where the time goes."""
    for benchmark in dict.fromkeys(result.benchmark for result in results):
        yield benchmark.removeprefix("test_").replace("_", " "), {"bold": True}
        for result in results:
            if result.benchmark == benchmark:
                yield from _cell(result)


def _cell(result: CellResult) -> Iterator[Line]:
    own = result.row("transport")
    head = f"  {result.cell:<24}"
    if own is None or own.problem:
        yield f"{head} no number: {result.why_not or (own and own.problem)}", {"yellow": True}
        return
    tail = "".join(f", p{name} {in_time(value)}" for name, value in own.percentiles.items() if name != "50")
    large = result.nbytes >= _LARGE_BYTES
    goodput = f", {own.goodput / 1e9:.3g} GB/s" if large else ""
    yield f"{head} {in_time(own.median)}{tail}{goodput}; cold {in_time(own.cold)}", {}
    yield f"    stages: {', '.join(_stages(own))}", {}
    if counted := _counted(own, large):
        yield f"    cost: {counted}", {}
    if compared := [f"{row.name} {_share(row.speed)}" for row in result.rows if row.speed and row.role != "again"]:
        yield f"    speed, as a share of: {', '.join(compared)}", {}
    for row in result.rows:
        if row.problem:
            yield f"    {row.name}: no number: {row.problem}", {"yellow": True}
    for finding in result.findings:
        yield f"    {finding}", COLOURS.get(finding.verdict, {})


def _stages(row: Row) -> Iterator[str]:
    for stage in STAGES:
        yield f"{stage.replace('_', ' ')} {in_time(row.stages[stage])}"


def _counted(row: Row, large: bool) -> str:
    found = []
    if large and row.cpu_per_gib:
        found.append(f"{row.cpu_per_gib:.2g} s of processors for a GiB")
    if "metadata_bytes" in row.counters:
        found.append(f"{row.counters['metadata_bytes']:.0f} bytes of metadata")
    if "copies" in row.counters:
        found.append(f"{row.counters['copies']:.1f} copies held")
    return ", ".join(found)


def _share(speed: Interval) -> str:
    return f"{_percent(speed.middle)} [{_percent(speed.low)}, {_percent(speed.high)}]"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
