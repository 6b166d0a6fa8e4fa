"""The heavy half of the plugin: one run of the suites on one transport, from its target to its exit status.

Registered by `rdt_conformance.plugin` only when a transport is named.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rdt_conformance import inputs, interrupts, junit, paths, suite_module, verdict as judging
from rdt_conformance.author import describe
from rdt_conformance.bench.run import BenchmarkRun
from rdt_conformance.caches import without_caches
from rdt_conformance.checks import CheckBroken
from rdt_conformance.checks.bench import Bench
from rdt_conformance.deviations import Deviation
from rdt_conformance.engines.engines import Engines, engines_of
from rdt_conformance.engines.ray_session import RayProblem
from rdt_conformance.environment import environment, versions
from rdt_conformance.items import (
    RESULT,
    attach,
    check_of,
    engine_of,
    has_result,
    result_of,
    result_without_run,
)
from rdt_conformance.leaving import leave_in_time
from rdt_conformance.options import SOAK, Settings
from rdt_conformance.private import without_places
from rdt_conformance.report import json_report, terminal
from rdt_conformance.report.saving import ReportProblem, forget_earlier
from rdt_conformance.requirements import Requirements
from rdt_conformance.results import CheckResult, Outcome
from rdt_conformance.selection import Selection
from rdt_conformance.suite_module import BENCH_OF, SuiteModule
from rdt_conformance.target import resolve
from rdt_conformance.words import count

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from rdt_conformance.verdict import Verdict


class Session:
    """Everything that has to be known from the beginning of a run to its end.

    Args:
        config: pytest's. Its ``args`` become the shipped suites if the user named no files.
        settings: what the user asked for.

    Raises:
        TargetProblem: the transport cannot be run at all.
        pytest.UsageError: the report could not be written, or the file of deviations cannot be used.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
        self._report_folder = inputs.report_folder(config, settings)
        self._deviations = inputs.deviations(config, settings)
        self.target = resolve(
            settings.transport, devices=settings.devices, data_type=settings.data_type, nodes=settings.nodes
        )
        self._required = Requirements(settings.required, self.target.capabilities)
        self._engines_of_run = engines_of(settings, self.target)
        self._selection = Selection(config, settings, self.target, self._engines_of_run)
        self._engines = Engines(settings.address, settings.nodes)
        self._bench: Bench | None = None
        self.seed = self._choose_seed()
        self._benchmarks = BenchmarkRun(
            config, settings, self.target, self._engines_of_run, self.seed, self._end_engines, self.bench
        )
        self.verdict: Verdict | None = None
        self._whole = config.args_source is not pytest.Config.ArgsSource.ARGS
        """The user named no files, so it is the shipped suites that run, all of them."""
        if self._whole:
            config.args = [str(path) for path in paths.suite_files()]
            config.args_source = pytest.Config.ArgsSource.ARGS
        self._selected: Counter[str] = Counter()
        """Checks of each engine."""
        self._shown = ""
        """The engine that was announced last."""
        self._running = False
        self._results: list[CheckResult] = []
        self._other_failures = False
        self._report_path: Path | None = None
        self._nothing = False
        """No check was selected."""
        self._early = ""
        """Why there is no verdict."""
        self._report_problem = ""
        self._exit_status = 0

    def register(self) -> None:
        """Make the hooks of this object and of other modules known to pytest."""
        self._config.stash[BENCH_OF] = self.bench
        self._config.pluginmanager.register(self, "rdt_conformance_session")
        self._config.pluginmanager.register(suite_module, "rdt_conformance_fixtures")
        self._config.pluginmanager.register(interrupts, "rdt_conformance_interrupts")
        self._benchmarks.register()

    # --- before the run -------------------------------------------------------------------------------------------

    def pytest_report_header(self) -> list[str]:
        """What is judged, how each fact of it was learnt, and how the run can be repeated."""
        settings, installed = self._settings, versions()
        nodes = f"{settings.nodes} nodes, " if settings.nodes > 1 else ""
        joined = f" at {settings.address}" if settings.address else ""
        minutes = f" for {settings.minutes:g} min" if settings.profile == SOAK else ""
        return [
            *self.target.header_lines(),
            f"rdt run: engine {', '.join(self._engines_of_run)}, profile {settings.profile}{minutes}, "
            f"--rdt-seed={self.seed}, {nodes}ray {installed.get('ray')}{joined}, torch {installed.get('torch')}",
            *self._demand_lines(),
            *self._replay_lines(),
        ]

    def _demand_lines(self) -> list[str]:
        listed, required = self._deviations, self._required.names
        told = [
            *([f"{listed.file} lists {count(len(listed.entries), 'deviation')}"] if listed else []),
            *([f"{', '.join(required)} required"] if required else []),
        ]
        return [f"rdt demands: {'; '.join(told)}"] if told else []

    def _replay_lines(self) -> list[str]:
        replay = self._settings.replay
        if replay is None:
            return []
        differing = replay.differing(self.target.depends_on())
        others = f"; NOT the same as when it was recorded: {', '.join(differing)}" if differing else ""
        return [f"rdt replay: one example of {replay.check}{others}"]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker of xdist the seed of the run."""
        node.workerinput["rdt_seed"] = self.seed

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        """Collect our suites by our own rules, everything else by the project's."""
        suites = paths.data_folder("suites")
        if module_path.is_relative_to(suites):
            nodeid = f"suites/{module_path.relative_to(suites).as_posix()}"
            return SuiteModule.from_parent(parent, path=module_path, nodeid=nodeid)
        return None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each check on every engine."""
        if "rdt" in metafunc.fixturenames:
            engines = self._engines_of_run
            metafunc.parametrize("rdt", engines, indirect=True, ids=engines)

    def bench(self, engine: str) -> Bench:
        """What the checks of one engine run on. The engine before it has done its work and is closed."""
        if self._bench is None or self._bench.engine != engine:
            self._close_bench()
            start = self._engines.start
            alone = self._selected.total() == 1
            self._bench = Bench(
                self.target,
                engine,
                start,
                self._settings.profile,
                self.seed,
                alone=alone,
                minutes=self._settings.minutes,
                later=engine != self._engines_of_run[0],
                checks=self._selected[engine],
            )
            self._bench.replay = self._settings.replay
        return self._bench

    def _close_bench(self) -> None:
        bench, self._bench = self._bench, None
        if bench is not None:
            bench.close()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[Any]:
        """Leave checks out before all others do, and have the last word on which engine comes first."""
        self._selection.take(items)
        self._selection.begin_with_the_basics(items)
        result = yield
        self._selection.put_in_order(items)
        return result

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what was selected; a check that runs alone is a replay."""
        self._selected = Counter(engine_of(item) for item in session.items if check_of(item))

    # --- during the run -------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[Any]:
        """Remember that tests were really run; ``--collect-only`` and the like earn no verdict."""
        self._running = not session.config.option.collectonly
        # Who hands out the work to others has no items itself.
        self._nothing = not session.items and not self._config.pluginmanager.hasplugin("dsession")
        if self._nothing:
            self._report_folder = None  # the one of an earlier run is worth more
        if self._has_verdict() and self._report_folder is not None:
            forget_earlier(self._report_folder)
        if self._running and self._settings.address is not None:
            self._join_ray()
        with interrupts.heeded(), without_caches() if self._whole else nullcontext():
            return (yield)

    def _join_ray(self) -> None:
        """Now, as a wrong address is found out better before the local engine has done its work than after.

        Raises:
            pytest.UsageError: there is none.
        """
        try:
            self._engines.start_ray()
        except RayProblem as problem:
            raise pytest.UsageError(f"--rdt-address: {problem}") from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Say which engine is at work: the names of the areas that pytest shows come again for each."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or not check_of(item) or len(self._engines_of_run) == 1 or engine_of(item) == self._shown:
            return
        self._shown = engine_of(item)
        reporter.ensure_newline()
        reporter.write_line(f"rdt engine {self._shown}: {self._selected[self._shown]} checks")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Attach the result of a check to its test."""
        if check_of(item) and isinstance(item, pytest.Function):
            bench = item.funcargs["rdt"]
            assert isinstance(bench, Bench), bench
            bench.record = lambda result: attach(item, result)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
        """Tell a broken clause in words instead of a traceback, and let no check go missing."""
        error = call.excinfo.value if call.excinfo else None
        interrupts.drop_unnumbered(error)  # pytest-timeout also raises from a signal
        report: pytest.TestReport = yield
        if isinstance(error, CheckBroken):
            report.longrepr = str(error)
            self._excuse(item, report)
        elif error and check_of(item) and call.when != "teardown" and not has_result(item):
            outcome: Outcome = "not run" if call.when == "setup" else "error"
            said = str(error) if isinstance(error, pytest.skip.Exception) else f"{call.when}: {describe(error)}"
            attach(item, result_without_run(item, outcome, said))
            report.user_properties = list(item.user_properties)
        return report

    def _excuse(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """A check that found nothing but listed deviations has failed as expected, in pytest's words too."""
        entries = [self._accepted(failure.clause, engine_of(item)) for failure in result_of(item).failures]
        if entries and all(entries):
            report.outcome = "skipped"
            report.wasxfail = "; ".join(f"listed deviation: {entry}: {entry.reason}" for entry in entries if entry)

    def _accepted(self, clause: str, engine: str) -> Deviation | None:
        return self._deviations.accepted(clause, engine) if self._deviations else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in a result, and leave what fits into a JUnit file in its place."""
        if self._workerinput is not None:
            return
        told = [value for name, value in report.user_properties if name == RESULT]
        results = [CheckResult.from_json(without_places(json.loads(str(text)))) for text in told]
        report.user_properties = [pair for pair in report.user_properties if pair[0] != RESULT]
        report.user_properties += [pair for result in results for pair in junit.properties(result, self._deviations)]
        if report.when == "teardown":
            self._other_failures |= report.failed
        else:
            self._other_failures |= report.failed and not results
            self._results += results

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is a failure of its own."""
        self._other_failures |= report.failed

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Show a check that passed but has advice to give as a warning."""
        if report.when == "call" and ("rdt_outcome", "warned") in report.user_properties:
            return "warned", "w", ("WARNED", {"yellow": True})
        return None

    # --- after the run --------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge, write the report and set the exit status; a run that was ended early keeps pytest's."""
        whole = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        self._early = "" if exitstatus in whole else f"no verdict: {interrupts.told()}"
        so_far = exitstatus == pytest.ExitCode.INTERRUPTED and bool(self._results or self._benchmarks.results)
        if self._has_verdict() and (exitstatus in whole or so_far):
            verdict = judging.judge(
                self._results,
                self.target,
                self._engines_of_run,
                selected_all=self._selected_all(session) and not so_far,
                deviations=self._deviations,
                required=self._required,
            )
            self._write_report(verdict)
            if not self._benchmarks.only:
                self.verdict = verdict
                session.exitstatus = exitstatus if so_far else self._status(verdict)
        self._exit_status = int(session.exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Show the verdict, or say that there is none; below pytest-benchmark's tables, which may be long."""
        if self.verdict is not None:
            terminal.write(
                self.verdict,
                self.target,
                terminalreporter,
                seed=self.seed,
                report_path=self._report_path,
                replayed=self._settings.replay is not None,
                nothing=self._nothing,
                first=self._early,
            )
        elif self._benchmarks.only and self._report_path is not None:
            for line in filter(None, (self._early, f"report: {self._report_path}")):
                terminalreporter.write_line(line)
        elif self._has_verdict() and not self._benchmarks.only:
            terminalreporter.section("rdt-conformance verdict")
            terminalreporter.write_line(self._early)
        if self._report_problem:
            terminalreporter.write_line(self._report_problem, red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End what the engines started, now that the report is written, whatever a transport has left them in.

        A transport's forgotten threads must not keep the interpreter alive either.
        """
        self._end_engines()
        leave_in_time(self._exit_status)

    def _end_engines(self) -> None:
        try:
            self._close_bench()
            self._engines.stop()
        except RayProblem as problem:
            print(f"rdt-conformance: {problem}")

    def _has_verdict(self) -> bool:
        """Whether this process is the one to judge, and the user meant to run checks.

        A project that names its transport in its ini file still runs its own tests by naming their files.
        """
        meant = self._whole or self._settings.from_command_line or bool(self._results)
        return self._running and self._workerinput is None and meant

    def _selected_all(self, session: pytest.Session) -> bool:
        narrowed = self._selection.narrowed() or self._benchmarks.only or self._settings.profile == SOAK
        return self._whole and not narrowed and not session.shouldfail and not session.shouldstop

    def _status(self, verdict: Verdict) -> int:
        status = verdict.exit_status
        if status is judging.Exit.BROKEN:
            return int(status)
        if self._report_problem:
            return int(judging.Exit.HARNESS_ERROR)
        if self._other_failures and status is not judging.Exit.HARNESS_ERROR:
            return int(pytest.ExitCode.TESTS_FAILED)
        return int(status)

    def _write_report(self, verdict: Verdict) -> None:
        if self._report_folder is None:
            return
        from rdt_conformance.report import folder, markdown  # what draws pages is needed now and not before

        settings = self._settings
        run = {"seed": self.seed, "profile": settings.profile, "engines": self._engines_of_run}
        try:
            benchmarks = [without_places(result.to_json()) for result in self._benchmarks.results]
            document = json_report.build(
                verdict,
                self.target,
                self._results,
                environment() | run,
                benchmarks,
                self._deviations,
                settings.required,
            )
            junit.tell(self._config, document)
            self._report_path = folder.write(self._report_folder, document)
            markdown.show_in_github(markdown.render(document))
        except ReportProblem as problem:
            self._report_problem = str(problem)

    def _choose_seed(self) -> int:
        if self._settings.seed is not None:
            return self._settings.seed
        if self._workerinput is not None:
            return self._workerinput["rdt_seed"]
        return secrets.randbelow(2**32)
