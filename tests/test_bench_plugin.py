"""Benchmarks as a user meets them: which are run, what is shown, and pytest-benchmark's own options."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_suites import LOADED, NO_CACHE

# Pytester forgets what a run inside this process imports, and some of these cannot be imported twice.
import rdt_conformance.session  # noqa: F401
import reference_transports.inline  # noqa: F401
from rdt_conformance import paths
from rdt_conformance.bench import contests, places, run as bench_run
from rdt_conformance.bench.ceilings import ceiling, ceilings_for
from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.loop import Contender
from rdt_conformance.bench.raw_peers import raw_peer
from rdt_conformance.bench.transports import TransportContender
from rdt_conformance.report import json_report
from tests.test_bench_contenders import Here

pytestmark = pytest.mark.usefixtures("not_side_by_side")

SUITE = """
    from rdt_conformance.bench.cells import benchmark, tensors
    from rdt_conformance.checks import Case, check

    @check("L1")
    def test_works(case: Case) -> None:
        source, destination = case.actors(2)
        payload = case.payload()
        case.arrived(case.ok(destination.consume(source.produce(payload))), payload)

    @benchmark(full=[tensors(4), tensors(1 << 16, 3), tensors(1 << 60)], quick=[tensors(4)])
    def test_sizes(arena, cell):
        arena.measure(cell)
"""
FAULTY = """
    import time
    from reference_transports.inline import InlineTransport

    class Wrong(InlineTransport):
        def recv_multiple_tensors(self, *args, **kwargs):
            tensors = super().recv_multiple_tensors(*args, **kwargs)
            if tensors[0].nbytes > 70:
                tensors[0][70] ^= 1
            return tensors

    class Slow(InlineTransport):
        def recv_multiple_tensors(self, *args, **kwargs):
            tensors = super().recv_multiple_tensors(*args, **kwargs)
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                pass
            return tensors

    class Failing(InlineTransport):
        def extract_tensor_transport_metadata(self, obj_id, tensors):
            raise ValueError("not today")
"""


class PairHere:
    """Source and receiver in this process."""

    def __init__(self, *, apart: bool = False) -> None:
        self._source: Any = Here()

    def contender(self, kind: str, name: str, load: Load, objects: int, pattern: str) -> Contender:
        if kind == "ceiling":
            return ceiling(name, self._source, load)
        if kind == "raw library":
            return raw_peer(name, self._source, load)
        return TransportContender(name, self._source, load, objects=objects, held_against=kind == "held against")

    def copies(self, kind: str, spec: str, load: Load) -> float:
        return 1.0

    def close(self) -> None:
        pass


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest with the plugin inside this process, on a suite with one check and one benchmark."""
    folder = tmp_path_factory.mktemp("suites")
    (folder / "test_shipped.py").write_text(textwrap.dedent(SUITE))
    data = paths.data_folder
    monkeypatch.setattr(paths, "data_folder", lambda name: folder if name == "suites" else data(name))
    monkeypatch.setattr(contests, "LocalPair", PairHere)
    monkeypatch.setattr(bench_run, "FULL_SECONDS", 0.5)
    monkeypatch.setattr(bench_run, "QUICK_SECONDS", 0.3)
    pytester.path.joinpath("faulty_here.py").write_text(textwrap.dedent(FAULTY))

    def run_pytest(*args: str, transport: str = "inline") -> pytest.RunResult:
        given = (f"--transport={transport}", "--rdt-engine=local", "--rdt-peers=none")
        return pytester.runpytest_inprocess(*LOADED, *given, *args, *NO_CACHE)

    return run_pytest


def _report(pytester: pytest.Pytester) -> dict[str, Any]:
    return json_report.read(pytester.path / "rdt-report" / "report.json")


def test_a_few_follow_the_checks(run: Run, pytester: pytest.Pytester) -> None:
    result = run("-v")
    result.assert_outcomes(passed=2)
    lines = result.stdout.str()
    assert lines.index("test_works[local]") < lines.index("rdt benchmark 1 of 1: test_sizes[4B]; about ")
    table = f"*benchmark 'sizes, 4 B': {1 + len(ceilings_for('cpu'))} tests*"
    result.stdout.fnmatch_lines(["*rdt-conformance benchmarks*", "sizes", "  4 B *us*cold*", table])
    assert [(cell["benchmark"], cell["cell"]) for cell in _report(pytester)["benchmarks"]] == [("test_sizes", "4 B")]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--rdt-profile=quick", "the profile is quick; --benchmark-only runs them"),
        ("--benchmark-skip", "--benchmark-skip"),
        ("--rdt-clause=L1", "clauses are picked; --benchmark-only runs them"),
        ("-pno:benchmark", "pytest-benchmark is switched off"),
    ],
)
def test_or_none_do(run: Run, option: str, reason: str) -> None:
    result = run(option)
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines([f"rdt benchmarks: none: {reason}"])
    result.stdout.no_fnmatch_line("*rdt-conformance benchmarks*")


def test_xdist_and_benchmarks_do_not_go_together_and_that_is_said(run: Run, pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(test_own=textwrap.dedent(SUITE))  # workers know nothing of the suites of this test
    result = run("-n1", "-v", "test_own.py")
    result.stdout.fnmatch_lines(["rdt benchmarks: none: xdist runs tests side by side*"])
    result.assert_outcomes(passed=1)


def test_alone_they_are_run_in_full_and_earn_no_verdict(run: Run, pytester: pytest.Pytester) -> None:
    result = run("--benchmark-only", "-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1, deselected=1)
    result.stdout.no_fnmatch_line("*rdt-conformance verdict*")
    result.stdout.fnmatch_lines(["  1.07374e+09 GiB *no number: it may take * of memory, and * are available"])
    result.stdout.fnmatch_lines(["report: */rdt-report/report.*"])
    report = _report(pytester)
    assert report["verdict"]["partial"]
    small, many, huge = report["benchmarks"]
    assert (many["nbytes"], many["tensors"], many["engine"]) == (1 << 16, 3, "local")
    assert huge["why_not"].startswith("it may take") and not huge["rows"]
    assert [row["role"] for row in small["rows"]] == ["transport", "again", *["ceiling"] * len(ceilings_for("cpu"))]
    for row in small["rows"]:
        assert row["verified"] > row["pairs"] == len(row["samples"]) > 0
        assert (row["speed"] is None) == (row["role"] == "transport")


def test_pytest_benchmark_writes_its_files_and_compares_them(run: Run, pytester: pytest.Pytester) -> None:
    run("--benchmark-only", "--benchmark-json=out.json", "--benchmark-autosave")
    written = json.loads((pytester.path / "out.json").read_text())
    rows = {bench["fullname"]: bench for bench in written["benchmarks"]}
    row = rows["suites/test_shipped.py::test_sizes[64KiB-3]::inline"]
    assert row["group"] == "sizes, 64 KiB in 3 tensors"
    assert row["stats"]["rounds"] == len(row["stats"]["data"]) > 0
    info = row["extra_info"]
    assert info["bytes"] == 1 << 16 and info["tensors"] == 3 and info["verified_cycles"] > row["stats"]["rounds"]
    assert set(info["stages"]) > {"extract", "wait"} and info["counters"]["metadata_bytes"] > 1 << 16
    memcpy = rows["suites/test_shipped.py::test_sizes[64KiB-3]::memcpy"]["extra_info"]
    assert memcpy["speed_of_transport"][0] < 1
    assert written["machine_info"]["rdt"]["packages"]["ray"]
    again = run("--benchmark-only", "--benchmark-compare")
    again.stdout.fnmatch_lines(["*inline (NOW)*"])


def test_wrong_data_fail_and_take_the_place_of_numbers(run: Run, pytester: pytest.Pytester) -> None:
    result = run("--benchmark-only", transport="faulty_here.py:Wrong")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, skipped=1, deselected=1)
    said = "*wrong data in cycle *: byte 70 of tensor 0 is 0x*"
    result.stdout.fnmatch_lines([said, f"  64 KiB in 3 tensors *no number: {said}"])
    own, memcpy = (_report(pytester)["benchmarks"][1]["rows"][index] for index in (0, 2))
    assert not own["samples"] and not own["pairs"] and memcpy["samples"] and memcpy["speed"] is None


def test_an_error_of_the_transport_fails(run: Run) -> None:
    result = run("--benchmark-only", transport="faulty_here.py:Failing")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no number: ValueError: not today*"])


def test_peers_are_measured_beside_it(run: Run) -> None:
    result = run("--rdt-peers=tcp,raw:GLOO,faulty_here.py:Failing")
    result.assert_outcomes(passed=2)
    shares = "*speed, as a share of*peer tcp * %*peer raw:GLOO * %*"
    failing = "*peer faulty_here.py:Failing: no number: *"
    result.stdout.fnmatch_lines([shares, failing])


def test_a_library_that_cannot_carry_it_has_a_reason_and_fails_nothing(run: Run, pytester: pytest.Pytester) -> None:
    run("--rdt-peers=raw:NCCL").assert_outcomes(passed=2)
    row = _report(pytester)["benchmarks"][0]["rows"][-1]
    assert (row["name"], row["problem"]) == ("peer raw:NCCL", "it moves GPU memory only")


def test_a_library_that_nobody_knows_is_told_in_a_line(run: Run) -> None:
    result = run("--rdt-peers=raw:FOO")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = "ERROR: --rdt-peers: there is no module 'raw'; *; libraries by themselves are raw:NIXL, raw:GLOO, raw:NCCL"
    result.stderr.fnmatch_lines([told])


PLACES = """
    from rdt_conformance.bench.cells import benchmark, tensors

    CELLS = [tensors(4), tensors(8), tensors(8, apart=True), tensors(4, pattern="whole rdt")]

    @benchmark(full=CELLS, quick=CELLS)
    def test_places(arena, cell):
        arena.measure(cell)
"""


def test_cells_between_gpus_say_so_and_are_skipped_without_two(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    pytester.makepyfile(test_own=textwrap.dedent(PLACES))
    result = run("--benchmark-only", "-k8B", "-v", "test_own.py")
    result.assert_outcomes(passed=1, skipped=1, deselected=2)
    result.stdout.fnmatch_lines(["*test_places[[]8B-apart[]]*SKIPPED*"])
    result.stdout.fnmatch_lines(["  8 B between GPUs *no number: it needs two GPUs, and there is 1"])
    result.stdout.no_fnmatch_line("*all between GPUs*")
    assert [cell["apart"] for cell in _report(pytester)["benchmarks"]] == [False, True]


def test_what_carries_nothing_within_one_gpu_is_carried_between_two_once(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(places, "why_not_within_one_gpu", lambda *_: tried.append(1) or "ValueError: both on one")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    pytester.makepyfile(test_own=textwrap.dedent(PLACES))
    said = "rdt benchmarks: all between GPUs, as it does not carry within one: ValueError: both on one"
    result = run("--benchmark-only", "-k8B", "-v", "test_own.py")
    result.assert_outcomes(skipped=1, deselected=2)
    result.stdout.fnmatch_lines([said, "*test_places[[]8B-apart[]]*SKIPPED*", "*rdt-conformance benchmarks*", said])
    result.stdout.fnmatch_lines(["  8 B between GPUs *no number: it needs two GPUs, and there are 0"])
    listed = run("--collect-only", "-q", "test_own.py").stdout
    listed.fnmatch_lines([f"test_own.py::test_places[[]{each}[]]" for each in ("4B-apart", "8B-apart", "4B-local")])
    assert len(tried) == 2


def test_a_lack_of_ray_says_nothing_of_a_place(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "why_not_within_one_gpu", lambda *_: "NeedsRayError: it calls into Ray")
    run("--collect-only").stdout.no_fnmatch_line("*apart*")


def test_held_against_another_transport_only_worse_fails(run: Run) -> None:
    result = run("--rdt-against=inline", "-k", "sizes", transport="faulty_here.py:Slow")
    assert result.ret == 1
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*time worse: * times as long, floor * %*"])
    better = run("--rdt-against=faulty_here.py:Slow", "-k", "sizes")
    better.assert_outcomes(passed=1, deselected=1)
    better.stdout.fnmatch_lines(["*time better: 0.*"])


def test_two_versions_of_one_file(run: Run, pytester: pytest.Pytester) -> None:
    old = pytester.mkdir("old") / "faulty_here.py"
    old.write_text(textwrap.dedent(FAULTY).replace("0.002", "0.05"))
    result = run("--rdt-against=old/faulty_here.py:Slow", "-k", "sizes", transport="faulty_here.py:Slow")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["*time better: 0.*"])


def test_held_against_an_earlier_report(run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_run, "FULL_SECONDS", 2.0)
    small = ("--benchmark-only", "-k4B and not 64KiB")
    run(*small, "--rdt-report=earlier")
    baseline = "--rdt-baseline=earlier/report.json"
    result = run(*small, baseline, transport="faulty_here.py:Slow")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"rdt benchmarks: in full, since {baseline[15:]}", "*time worse: *by memcpy*"])
    path = pytester.path / "earlier" / "report.json"
    elsewhere = json.loads(path.read_text())
    del elsewhere["footer"]
    elsewhere["environment"]["cpu"] = "another one"
    path.write_text(json.dumps(elsewhere | {"footer": json_report.footer(elsewhere)}))
    result = run(*small, baseline, transport="faulty_here.py:Slow")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*time inconclusive: measured on another machine, not judged*"])


def test_a_report_without_benchmarks_is_no_baseline(run: Run, pytester: pytest.Pytester) -> None:
    run("--rdt-profile=quick")
    result = run("--rdt-baseline=rdt-report/report.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --rdt-baseline: * its run had no benchmarks"])


def test_the_shipped_benchmarks_fit_their_budgets() -> None:
    counts: dict[str, list[int]] = {"full": [], "quick": []}
    for path in (Path(__file__).parent.parent / "suites" / "benchmarks").glob("test_*.py"):
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        for function in names.values():
            if spec := getattr(function, "__rdt_benchmark__", None):
                counts["full"].append(len(spec.full))
                counts["quick"].append(len(spec.quick))
    assert sum(counts["quick"]) * bench_run.QUICK_SECONDS < 12
    assert sum(counts["full"]) >= 15
