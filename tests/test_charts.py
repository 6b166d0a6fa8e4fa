"""Charts: what they show is what was measured, what is missing is told, and their SVG is well formed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

import made_benchmarks
import pytest
from made_benchmarks import KIB, MIB, cell

from rdt_conformance.bench.results import CellResult
from rdt_conformance.report.charts import changes, costs, one_run, samples, several_runs, svg, transfers
from rdt_conformance.report.charts.marks import Bars, Chart, Forest, Missing, Plot

FULL = made_benchmarks.full(peers={"ray:NIXL": 1.4}, baseline=1.2)
ODD = made_benchmarks.odd()
MADE: dict[str, Sequence[CellResult]] = {
    "full": FULL,
    "odd": ODD,
    "nothing exact": made_benchmarks.nothing_exact(),
    "hostile": made_benchmarks.named("<script>&\"'\u202e", "x" * 5000),
    "nothing": [],
}
TITLES = [
    "Latency by size", "Goodput by size, and what the machine can do", "Latency by number of tensors",
    "Goodput by objects in flight", "Where the time of a cycle goes", "Whole RDT by size", "Copies held at the peak",
    "Processor time for a GiB", "Change against the baseline",
]  # fmt: skip


def drawn(chart: Chart | Missing) -> Chart:
    assert isinstance(chart, Chart), chart
    return chart


def missing(chart: Chart | Missing) -> str:
    assert isinstance(chart, Missing), chart
    return chart.why


def plot(chart: Chart | Missing) -> Plot:
    drawing = drawn(chart).drawing
    assert isinstance(drawing, Plot)
    return drawing


@pytest.mark.parametrize("name", MADE)
def test_every_chart_is_there_or_says_why_not(name: str) -> None:
    found = one_run.charts(MADE[name])
    assert set(TITLES) <= {chart.title for chart in found}
    assert all(chart.why for chart in found if isinstance(chart, Missing))
    ids = [chart.id for chart in found if isinstance(chart, Chart)]
    assert len(ids) == len(set(ids))
    if name == "full":
        assert not [chart for chart in found if isinstance(chart, Missing)]


@pytest.mark.parametrize("name", MADE)
def test_the_drawing_is_well_formed_and_within_its_frame(name: str) -> None:
    for chart in one_run.charts(MADE[name]):
        if isinstance(chart, Missing):
            continue
        root = ElementTree.fromstring(svg.as_svg(chart))
        assert (root.get("role"), root.get("aria-labelledby")) == ("img", f"{chart.id}-title")
        _, _, width, height = map(float, (root.get("viewBox") or "").split())
        for element in root.iter():
            assert not {"style", "onload", "href"} & element.attrib.keys()
            x, y = float(element.get("x", 0)), float(element.get("y", 0))
            assert 0 <= x <= width and 0 <= y <= height, (chart.title, element.attrib)
            assert x + float(element.get("width", 0)) <= width + 0.2
            for start in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", element.get("d", "")):
                assert 0 <= float(start[0]) <= width and 0 <= float(start[1]) <= height, (chart.title, element.attrib)


@pytest.mark.parametrize("chart", [c for c in one_run.charts(FULL) if isinstance(c, Chart)], ids=lambda chart: chart.id)
def test_each_has_words_axes_and_a_table_of_the_same(chart: Chart) -> None:
    assert chart.title and chart.says.endswith(".") and chart.how.endswith(".")
    assert chart.table.rows and all(len(row) == len(chart.table.head) for row in chart.table.rows)
    match chart.drawing:
        case Plot(x, y, series):
            assert x.title and y.title and x.ticks and y.ticks
            assert len({each.name for each in series}) == len(series) == len({each.style for each in series})
        case Bars(axis, rows) | Forest(axis, rows):
            assert axis.title and axis.ticks and len({row.name for row in rows}) == len(rows)


def test_lines_go_through_what_was_measured() -> None:
    own, *others = plot(transfers.latency(FULL)).series
    sizes = [each for each in FULL if each.benchmark == "test_single_tensor"]
    assert [(p.x, p.y) for p in own.points] == [(each.nbytes, each.rows[0].median) for each in sizes]
    assert (own.name, own.style) == ("this transport", 0)
    assert [each.name for each in others] == [*made_benchmarks.LIMITS, "ray:NIXL", "against old.py:Old"]
    assert all(p.low is not None and p.high is not None and p.low < p.y < p.high for p in own.points)


def test_a_band_takes_forty_samples() -> None:
    own = plot(transfers.latency([cell("test_single_tensor", "4 B", 4, count=39)])).series[0]
    assert (own.points[0].low, own.points[0].high) == (None, None)


def test_the_share_is_that_of_the_fastest_limit_that_moves_bytes() -> None:
    one = cell("test_single_tensor", "1 MiB", MIB)
    one.rows[1:] = [replace(row, median=row.median / 100) if row.name == "first touch" else row for row in one.rows[1:]]
    memcpy = next(row for row in one.rows if row.name == "memcpy")
    own = plot(transfers.goodput([one])).series[0]
    assert own.points[0].label == f"{100 * memcpy.median / one.rows[0].median:.0f} %"
    assert "of memcpy" in drawn(transfers.goodput([one])).says


def test_one_tensor_counts_as_the_beginning_of_more() -> None:
    cells = [cell("test_single_tensor", "16 MiB", 16 * MIB), cell("test_number_of_tensors", "in 9", 16 * MIB, 9)]
    assert [point.x for point in plot(transfers.tensors(cells)).series[0].points] == [1, 9]
    assert "--benchmark-only" in missing(transfers.tensors(cells[1:]))


def test_what_is_in_flight_is_counted_in_objects() -> None:
    chart = transfers.in_flight(FULL)
    assert [point.x for point in plot(chart).series[0].points] == [1, 8, 64]
    told = CellResult("test_pipelined_gets", "8", "local", 8, 8, False, why_not="it takes a one-sided transport")
    assert missing(transfers.in_flight([told])) == "it takes a one-sided transport"


def test_no_number_is_shown_that_nobody_verified() -> None:
    chart = drawn(transfers.latency(ODD))
    assert [point.x for point in plot(chart).series[0].points] == [4, 256 * KIB]
    assert chart.notes == [
        "No number of this transport at 1 KiB: wrong data in cycle 3: byte 70 of tensor 0 is 0x01",
        "No number of this transport at 16 KiB: not verified: not one of its transfers was compared byte by byte",
        "No number of this transport at 64 KiB: no samples",
        "No number of memcpy at 256 KiB: no samples",
        "No number at 64 GiB: it takes 640 GiB",
    ]


def test_stages_of_a_cycle_make_the_whole() -> None:
    drawing = drawn(costs.stages(FULL)).drawing
    assert isinstance(drawing, Bars)
    for row in drawing.rows:
        assert sum(part.value for part in row.parts) == pytest.approx(1)
    assert drawn(costs.stages(FULL)).legend[:3] == ["create", "extract", "control"]


def test_a_distribution_keeps_its_ends_and_its_tail_is_dotted() -> None:
    one = cell("test_single_tensor", "4 B", 4, count=2000)
    series = plot(samples.distributions([one])[0]).series[0]
    times = one.rows[0].samples
    assert (series.points[0].y, series.points[-1].y) == (min(times), max(times))
    assert len(series.points) <= samples.STEPS + 1
    assert series.doubtful_from is not None and series.points[series.doubtful_from].x == pytest.approx(0.995, abs=2e-3)
    assert [point.y for point in series.points] == sorted(point.y for point in series.points)
    few = cell("test_single_tensor", "4 B", 4, count=19)
    assert missing(samples.distributions([few])[0]) == "no size has 20 samples with exact data"


@pytest.mark.parametrize("count", [2, 300, 301, 2000])
def test_samples_in_time_are_thinned_and_no_outlier_is_lost(count: int) -> None:
    one = cell("test_single_tensor", "4 B", 4, count=count)
    times = one.rows[0].samples
    times[count // 3] = 9.0
    chart = drawn(samples.in_time([one])[0])
    points = plot(chart).series[0].points
    assert (count // 3, 9.0) in [(point.x, point.y) for point in points]
    assert len(points) == count if count <= samples.DOTS else len(points) <= samples.DOTS
    assert bool(chart.notes) == (count > samples.DOTS)
    assert all(times[int(point.x)] == point.y for point in points)


def test_changes_say_what_the_gate_says() -> None:
    cells = [cell("test_single_tensor", name, MIB, baseline=by) for name, by in (("a", 1.5), ("b", 0.5), ("c", 1.0))]
    chart = drawn(changes.changes(cells))
    assert isinstance(chart.drawing, Forest)
    assert [row.label.partition(" ")[2] for row in chart.drawing.rows] == ["✓ better", "✕ worse", "= same"]
    for row, each in zip(chart.drawing.rows, cells, strict=True):
        (change,) = each.findings[0].changes
        assert (row.middle, row.zone) == (change.slower.middle, change.floor)
    assert "--rdt-against" in missing(changes.changes([cell("test_single_tensor", "a", 4)]))


def test_what_the_table_has_is_everything() -> None:
    table = one_run.table(ODD)
    assert len(table.rows) == sum(len(each.rows) or 1 for each in ODD)
    assert all(len(row) == len(table.head) for row in table.rows)
    notes = [row[-1] for row in table.rows if row[-1]]
    assert len(notes) == 5 and notes[0].startswith("no number: wrong data") and notes[-1].startswith("not measured: ")
    assert all(re.fullmatch(r"[\d.]*", value) for row in table.rows for value in row[4:-1])


def test_several_runs_are_on_one_chart() -> None:
    runs = [(f"run {number}", made_benchmarks.some(speed=1e9 * number, seed=number)) for number in (1, 2, 3)]
    latency, share, tensors = several_runs.charts([*runs, ("none", [])], alike=True)
    for chart in (latency, share, tensors):
        assert [each.name for each in plot(chart).series] == ["run 1", "run 2", "run 3"]
        ElementTree.fromstring(svg.as_svg(drawn(chart)))
    assert "(run 3) to" in drawn(latency).says and drawn(latency).says.endswith("(run 1).")
    assert "differ" in drawn(several_runs.charts(runs, alike=False)[0]).how
    assert {missing(chart) for chart in several_runs.charts([("a", []), ("b", ODD[1:3])], alike=True)}


def test_what_is_carried_between_gpus_as_well_is_no_second_point() -> None:
    within = cell("test_single_tensor", "64 MiB", 64 * MIB, count=40)
    between = replace(within, cell="64 MiB between GPUs", apart=True)
    assert transfers.of([within, between], "test_single_tensor") == [within]
    assert transfers.of([between], "test_single_tensor") == [between]
    assert {line[1] for line in one_run.table([within, between]).rows} == {"64 MiB", "64 MiB between GPUs"}
