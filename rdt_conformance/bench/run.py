"""The benchmarks of one run, from pytest's items to pytest-benchmark's table."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pytest_benchmark.stats import Metadata

from rdt_conformance.bench import gate, places, table
from rdt_conformance.bench.allowance import Allowance
from rdt_conformance.bench.cells import BenchmarkSpec, Cell
from rdt_conformance.bench.contests import Contests
from rdt_conformance.bench.raw_peers import RAW_PEERS, why_not_installed
from rdt_conformance.bench.results import CellResult, Finding, Row
from rdt_conformance.bench.statistics import Verdict
from rdt_conformance.bench.versions import transport_of
from rdt_conformance.environment import environment, fingerprint
from rdt_conformance.options import SOAK
from rdt_conformance.report import json_report
from rdt_conformance.report.saving import ReportProblem
from rdt_conformance.target import TargetProblem, resolve

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter
    from pytest_benchmark.fixture import BenchmarkFixture

    from rdt_conformance.checks.bench import Bench
    from rdt_conformance.options import Settings
    from rdt_conformance.target import Target

QUICK_SECONDS = 1.0
"""For each cell that follows the checks."""
FULL_SECONDS = 10.0
"""For each cell of a full run, or less: all of them have `ALL_SECONDS`."""
ALL_SECONDS = 360.0
WHOLE_SECONDS = 500.0
"""After so long a full run is over, if it can be: whatever comes besides measuring is then at the expense of that."""
BUSY = "xdist runs tests side by side, which measures nothing but that; run pytest without -n"
NOT_THE_TRANSPORTS = ("MemoryError", "[Errno 12]", "[Errno 28]", "NeedsRayError")
"""What an error begins with or says if it is this machine, or this engine, that cannot do it."""

_RUN = pytest.StashKey["BenchmarkRun"]()


@dataclass
class Arena:
    """What the body of a benchmark works with: the transport under test and what it is measured beside."""

    run: BenchmarkRun
    item: pytest.Item
    fixture: BenchmarkFixture

    def measure(self, cell: Cell) -> None:
        """Measure a cell, and fail if the transport does not bring the right data, or has become worse."""
        self.fixture._mode = "rdt"  # it is used, though pytest-benchmark's own loop, which cannot take turns, is not
        self.run.measure(self.item, cell)


@pytest.fixture
def arena(request: pytest.FixtureRequest, benchmark: BenchmarkFixture) -> Arena:
    """For one benchmark; with pytest-benchmark's fixture, by which that knows us."""
    if benchmark.disabled:
        pytest.skip("--benchmark-disable")
    return Arena(request.config.stash[_RUN], request.node, benchmark)


class BenchmarkRun:
    """Selects the benchmarks that a run has time for, measures, and shows.

    Args:
        config: pytest's.
        settings: what the user asked for.
        target: the transport.
        engines: of the run.
        seed: of the run.
        make_quiet: ends what the checks have left running, which would be measured too.
        bench: gives the transport on an engine.

    Raises:
        pytest.UsageError: the earlier report cannot be used, or a peer cannot be found.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        target: Target,
        engines: Sequence[str],
        seed: int,
        make_quiet: Callable[[], None],
        bench: Callable[[str], Bench],
    ) -> None:
        self._config = config
        self._settings = settings
        self.only = bool(config.getoption("benchmark_only", False))
        """Nothing but benchmarks are run, in full."""
        self._idle = self._reason_not_to_run()
        self._target = target
        self._seed = seed
        self._engines = engines
        self._make_quiet = make_quiet
        self._bench = bench
        self._earlier = _read(config.invocation_params.dir / settings.baseline) if settings.baseline else None
        for peer in self._peers():
            _check("peers", peer)
        if settings.against is not None:
            _check("against", settings.against)
        self._environment = environment()
        self._contests: Contests | None = None
        self._place: str | None = None
        self._left: list[pytest.Item] = []
        self._began = self._started = 0.0
        self._done = 0
        self._allowance: Allowance | None = None
        self.results: list[CellResult] = []

    def _reason_not_to_run(self) -> str:
        if not self._config.pluginmanager.hasplugin("benchmark"):
            return "pytest-benchmark is switched off"
        if self._config.getoption("dist", "no") != "no" or hasattr(self._config, "workerinput"):
            return BUSY
        if self._settings.replay is not None:
            return "one failure is shown again"
        if self._settings.clauses and not self.only:
            return "clauses are picked; --benchmark-only runs them"
        if self._config.getoption("benchmark_skip", False) and not self.only:
            return "--benchmark-skip"
        if self._settings.profile in ("quick", SOAK) and not self.only:
            return f"the profile is {self._settings.profile}; --benchmark-only runs them"
        return ""

    def register(self) -> None:
        """Make the hooks of this object and the fixture known to pytest."""
        self._config.stash[_RUN] = self
        self._config.pluginmanager.register(self, "rdt_conformance_benchmarks")
        self._config.pluginmanager.register(sys.modules[__name__], __name__)

    def pytest_report_header(self) -> str:
        """Whether there are benchmarks in this run."""
        if self._idle:
            return f"rdt benchmarks: none: {self._idle}"
        peers = ", ".join(self._peers())
        against = f", against {self._settings.against}" if self._settings.against else ""
        since = f", since {self._settings.baseline}" if self._settings.baseline else ""
        how = "in full" if self.only else "a few, after the checks"
        return f"rdt benchmarks: {how}{f', with {peers} beside it' if peers else ''}{against}{since}"

    def _peers(self) -> Sequence[str]:
        if self._settings.peers is not None:
            return self._settings.peers
        nixl = "ray:NIXL"
        fits = self._target.spec != nixl and self._target.takes_buffers
        return (nixl,) if self.only and fits and _installed("nixl") else ()

    def _only_apart(self) -> str:
        """Why all is carried between GPUs, if the transport does not do it within one; empty if it does."""
        if self._place is None:
            said = "" if self._idle else places.why_not_within_one_gpu(self._target, self._seed)
            of_place = said and not any(each in said for each in NOT_THE_TRANSPORTS)
            about = "rdt benchmarks: all between GPUs, as it does not carry within one"
            self._place = f"{about}: {said}" if of_place else ""
        return self._place

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """Whether they are between GPUs only."""
        place = self._only_apart() if any(map(_is_benchmark, items)) else ""
        return [place] if place else []

    # --- selection --------------------------------------------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each cell."""
        spec: BenchmarkSpec | None = getattr(metafunc.function, "__rdt_benchmark__", None)
        if spec is not None:
            device = self._target.devices.value[0]
            chosen = [cell for cell in (spec.full if self.only else spec.quick) if cell.device in ("", device)]
            cells = [each for cell in self._placed(chosen) for each in self._on_engines(cell)]
            metafunc.parametrize("cell", cells, ids=[cell.id for cell in cells])

    def _placed(self, cells: list[Cell]) -> list[Cell]:
        """All of them between GPUs, if it has to be. Some may be so anyway, and are not measured twice.

        In whole RDT the engine says where its actors are.
        """
        if not self._only_apart():
            return cells
        moved = [cell if cell.pattern == "whole rdt" else dataclasses.replace(cell, apart=True) for cell in cells]
        return list({dataclasses.replace(cell, device=""): cell for cell in moved}.values())

    def _on_engines(self, cell: Cell) -> list[Cell]:
        if cell.pattern != "whole rdt":
            return [cell]
        return [cell.on(engine) for engine in self._engines]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Benchmarks come last, when nothing else runs any more, or do not come at all."""
        ours = [item for item in items if _is_benchmark(item)]
        others = [item for item in items if not _is_benchmark(item)]
        idle = [*(others if self.only else []), *(ours if self._idle else [])]
        if idle:
            config.hook.pytest_deselected(items=idle)
        items[:] = [item for item in [*others, *ours] if item not in idle]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count them."""
        self._left = [item for item in session.items if _is_benchmark(item)]

    # --- measuring --------------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Say what is running, and what is left."""
        if not _is_benchmark(item):
            return
        self._say(item)
        self._left = self._left[1:]
        self._done += 1

    def _say(self, item: pytest.Item) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        if self._done <= 1:  # the first one also starts the processes
            self._began = time.monotonic()
        total = self._done + len(self._left)
        each = (time.monotonic() - self._began) / (self._done - 1) if self._done > 1 else self._seconds() + 2
        reporter.ensure_newline()
        reporter.write_line(
            f"rdt benchmark {self._done + 1} of {total}: {item.name}; about {len(self._left) * each:.0f} s left"
        )

    def _seconds(self) -> float:
        if not self.only:
            return QUICK_SECONDS
        return min(FULL_SECONDS, ALL_SECONDS / max(1, self._done + len(self._left)) / self._measurements())

    def _measurements(self) -> int:
        """How many a cell has: one with the machine's limits, and one with the peers if there are any."""
        return 2 if self._peers() else 1

    def _allowed(self, measured: float) -> float:
        """Seconds for each measurement of the next cell of a full run; all so far were given `measured`."""
        if self._allowance is None:
            self._started = time.monotonic()
            self._allowance = Allowance(WHOLE_SECONDS, self._seconds(), QUICK_SECONDS, self._measurements())
        return self._allowance.next(time.monotonic() - self._started, measured, len(self._left) + 1)

    def measure(self, item: pytest.Item, cell: Cell) -> None:
        """Measure one cell; the test ends as what was found says."""
        if self._contests is None:
            self._make_quiet()
            self._contests = Contests(
                self._target,
                self._peers(),
                self._settings.against,
                gated=self.only or self._earlier is not None,
                seconds=QUICK_SECONDS,
                seed=self._seed,
                bench=self._bench,
            )
        if self.only:
            self._contests.seconds = self._allowed(self._contests.measured)
        result = self._contests.measure(getattr(item, "originalname", item.name), cell)
        self.results.append(result)
        self._hand_over(item, result)
        result.findings = self._gate(result)
        own = result.row("transport")
        problem = own.problem if own else result.why_not
        if not own or any(said in problem for said in NOT_THE_TRANSPORTS):
            pytest.skip(problem)
        worse = [str(finding) for finding in result.findings if finding.verdict is Verdict.WORSE]
        if problem or worse:
            pytest.fail(problem or "; ".join(worse), pytrace=False)

    def _gate(self, result: CellResult) -> list[Finding]:
        found = gate.against(result, self._seed) if self._settings.against is not None else []
        if self._earlier is not None:
            cells = {cell.key: cell for cell in map(CellResult.from_json, self._earlier["benchmarks"])}
            if result.key in cells:
                comparable = fingerprint(self._earlier["environment"]) == fingerprint(self._environment)
                found += gate.since(result, cells[result.key], comparable=comparable, seed=self._seed)
        return found

    def _hand_over(self, item: pytest.Item, result: CellResult) -> None:
        """Give pytest-benchmark the samples, for its table and files."""
        for row in result.rows:
            if not row.problem and row.role != "again":
                stands_for_fixture = SimpleNamespace(
                    name=row.name,
                    fullname=f"{item.nodeid}::{row.name}",
                    group=f"{result.benchmark.removeprefix('test_').replace('_', ' ')}, {result.cell}",
                    param=result.cell,
                    params={"bytes": result.nbytes, "tensors": result.tensors, "engine": result.engine},
                    extra_info=_extra_info(row, result),
                    cprofile_stats=None,
                    has_error=False,
                )
                metadata = Metadata(stands_for_fixture, iterations=1, options={})
                for sample in row.samples:
                    metadata.update(sample)
                self._config._benchmarksession.benchmarks.append(metadata)  # type: ignore[attr-defined]

    # --- the end ----------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Let its files tell as much of the machine as our report."""
        machine_info["rdt"] = {name: value for name, value in self._environment.items() if name != "load_average"}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End the processes."""
        if self._contests is not None:
            self._contests.close()

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Show every cell."""
        if self.results:
            terminalreporter.section("rdt-conformance benchmarks")
            if place := self._only_apart():
                terminalreporter.write_line(place)
            for text, markup in table.lines(self.results):
                terminalreporter.write_line(text, **markup)


def _is_benchmark(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "function", None), "__rdt_benchmark__")


def _extra_info(row: Row, result: CellResult) -> dict[str, Any]:
    """What pytest-benchmark's own columns do not tell."""
    return {
        "bytes": result.nbytes,
        "tensors": result.tensors,
        "role": row.role,
        "goodput_bytes_per_second": row.goodput,
        "stages": row.stages,
        "cold": row.cold,
        "cpu_seconds_per_gib": row.cpu_per_gib,
        "counters": row.counters,
        "verified_cycles": row.verified,
        "speed_of_transport": None if row.speed is None else [row.speed.middle, row.speed.low, row.speed.high],
    }


def _check(option: str, spec: str) -> None:
    """A wrong name is found out now, and not when the checks are done."""
    if option == "peers" and spec in RAW_PEERS:
        if reason := why_not_installed(spec):
            raise pytest.UsageError(f"--rdt-peers: {spec}: {reason}")
        return
    try:
        transport_of(spec) if option == "against" else resolve(spec)
    except TargetProblem as problem:
        raw = f"; libraries by themselves are {', '.join(RAW_PEERS)}" if spec.startswith("raw:") else ""
        raise pytest.UsageError(f"--rdt-{option}: {problem}{raw}") from None


def _read(baseline: Path) -> dict[str, Any]:
    try:
        report = json_report.read(baseline)
    except ReportProblem as problem:
        raise pytest.UsageError(f"--rdt-baseline: {problem}") from None
    if not report.get("benchmarks"):
        raise pytest.UsageError(f"--rdt-baseline: {baseline}: its run had no benchmarks")
    return report


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
