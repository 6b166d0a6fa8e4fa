"""What it was held against: each comparison with its interval, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rdt_conformance.bench.results import CellResult
from rdt_conformance.bench.statistics import Interval, Verdict
from rdt_conformance.report.charts import scale
from rdt_conformance.report.charts.costs import called
from rdt_conformance.report.charts.marks import Chart, Forest, Missing, Table, Whisker
from rdt_conformance.report.charts.measured import named, usable
from rdt_conformance.report.charts.transfers import WHOLE
from rdt_conformance.words import count

SIGNS = {
    Verdict.WORSE: ("✕ worse", "fail"),
    Verdict.BETTER: ("✓ better", "pass"),
    Verdict.SAME: ("= same", "na"),
    Verdict.INCONCLUSIVE: ("? inconclusive", "unknown"),
}
"""In words, and the class in the style sheet."""


def changes(cells: Sequence[CellResult]) -> Chart | Missing:
    """How many times as long it takes as the version, or the report, that it was held against."""
    title = "Change against the baseline"
    rows, table = [], []
    for cell in cells:
        for finding in cell.findings:
            said, tone = SIGNS[finding.verdict]
            table.append([called(cell), finding.what, said.partition(" ")[2], finding.words])
            for change in finding.changes:
                if _drawable(change.slower):
                    name = f"{called(cell)}{f', by {change.by}' if change.by else ''}"
                    rows.append(
                        _whisker(name, change.slower, f"{change.slower.middle:.2f}x {said}", change.floor, tone)
                    )
    if not rows:
        found = f"{len(table)} quantities were compared, none of them a time" if table else ""
        return Missing(title, found or "it was held against nothing; --rdt-against and --rdt-baseline do that")
    counted = {verdict: sum(f.verdict is verdict for c in cells for f in c.findings) for verdict in SIGNS}
    told = ", ".join(f"{number} {verdict.value}" for verdict, number in counted.items() if number)
    return Chart(
        "changes",
        title,
        f"{told[:1].upper()}{told[1:]}.",
        "Left of 1x it takes less time than before, right of it more. The line is the 95 % interval of the ratio; only "
        "what lies wholly beyond the grey zone counts as a change.",
        Forest(scale.ratios("how many times as long as the baseline", _ends(rows)), rows),
        Table(["cell", "what", "said", "by"], table, numbers=4),
    )


def peers(cells: Sequence[CellResult]) -> list[Chart | Missing]:
    """How many times as fast it is as each other transport that was measured beside it."""
    found: dict[str, list[tuple[str, Interval]]] = {}
    for cell in cells:
        for row in usable(cell):
            if row.role == "peer" and cell.benchmark != WHOLE and row.speed and _drawable(row.speed):
                found.setdefault(named(row), []).append((called(cell), row.speed))
    if not found:
        return [Missing("Speed beside other transports", "none was measured beside it; --rdt-peers does that")]
    return [_peer(name, speeds, number) for number, (name, speeds) in enumerate(found.items(), 1)]


def _peer(name: str, speeds: Sequence[tuple[str, Interval]], number: int) -> Chart:
    rows = [_whisker(where, speed, f"{speed.middle:.2f}x") for where, speed in speeds]
    faster, slower = sum(row.low > 1 for row in rows), sum(row.high < 1 for row in rows)
    return Chart(
        f"peer-{number}",
        f"Speed beside {name}",
        f"Faster in {faster} and slower in {slower} of {count(len(rows), 'cell')}.",
        "Right of 1x this transport is faster. Both took turns; the line is the 95 % interval of the ratio of pairs.",
        Forest(scale.ratios("times as fast as the other", _ends(rows)), rows),
        Table(
            ["cell", "pairs", "times as fast", "95 % from", "to"],
            [[where, str(s.pairs), *(f"{each:.3f}" for each in (s.middle, s.low, s.high))] for where, s in speeds],
        ),
    )


def _drawable(ratio: Interval) -> bool:
    return all(math.isfinite(value) and value > 0 for value in (ratio.low, ratio.middle, ratio.high))


def _whisker(name: str, ratio: Interval, label: str, zone: float = 0.0, tone: str = "") -> Whisker:
    return Whisker(name, ratio.middle, ratio.low, ratio.high, label, zone, tone)


def _ends(rows: Sequence[Whisker]) -> list[float]:
    ends = [value for row in rows for value in (row.low, row.high)]
    return [*ends, *(1 + row.zone for row in rows), *(1 / (1 + row.zone) for row in rows)]
