"""Every kind of page that a run or a comparison can lead to, from results that are written down here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import made_benchmarks
from made_reports import STEPS, FakeTarget, failing, passing, write

from rdt_conformance import contract
from rdt_conformance.deviations import Deviation, Deviations
from rdt_conformance.report import folder, json_report
from rdt_conformance.results import CheckResult, Step, Twin

MUST = [
    clause.id
    for clause in contract.CLAUSES.values()
    if clause.level is contract.Level.MUST and not clause.untested and clause.applies is not contract.Applies.CUDA
]
HOSTILE = (
    "<script>document.title='taken'</script>",
    "<img src=x onerror=alert(1)>",
    '"\' onmouseover="alert(1)" x=\'',
    "</style></svg></code><h1>big</h1>",
    "{{ 7 * 7 }} {% raw %}",
    "مرحبا بالعالم \u202eabc",
    "🦀🚀👩‍👩‍👧‍👦 tensor",
    "x" * 5_000,
    "line\nbreak\tand \x01 control, half a character \ud800",
)


def no_failures(place: Path) -> Path:
    """A conformant run on two engines, with facts."""
    results = passing("local", "ray")
    results[0] = dataclasses.replace(results[0], facts={"delivers": "the contents at extract", "sizes": [1, 2]})
    open_to = [["listening socket", "0.0.0.0 port 7000", "", "the network"], ["file", "/tmp/f", "0600", "this user"]]
    results[-1] = dataclasses.replace(results[-1], facts={"exposure": open_to})
    return page(place, write(place, results, "local", "ray"))


def one_failure(place: Path) -> Path:
    """One broken clause, a warning, and one that nobody knows of."""
    results = passing(besides=["G4", "G10", "A1"])
    unknown = CheckResult("test_a1", "local", ("A1",), "not run", reason="no transfer was caught in flight")
    return page(place, write(place, [*results, failing("G4"), failing("G10"), unknown]))


def deviations(place: Path, link: str = "https://example.com/issues/17") -> Path:
    """One listed deviation that is seen, which hides another clause, and an entry that is no longer true."""
    ended = dataclasses.replace(failing("G4"), clauses=("G4", "G5"), seen=("G4",))
    day = date(2026, 11, 28)
    entries = [Deviation(clause, "all", HOSTILE[0], link, day) for clause in ("G4", "D1")]
    listed = Deviations(tuple(entries), "known.toml", day)
    return page(place, write(place, [*passing(besides=["G4", "G5"]), ended], deviations=listed))


def forty_failures(place: Path) -> Path:
    """Forty broken clauses, each with as long a history as there is."""
    history = tuple(
        Step(n, n / 100, ("source", "sink")[n % 2], "main", "recv_multiple_tensors()", f"obj{n}", n / 100 + 0.035, "ok")
        for n in range(1, 61)
    )
    results = [*passing(besides=MUST[:40]), *(failing(c, history=history, twin=Twin((), history)) for c in MUST[:40])]
    return page(place, write(place, results))


def nothing_run(place: Path) -> Path:
    """A run without any result."""
    return page(place, write(place, []))


def partial(place: Path) -> Path:
    """A run of picked checks, one of which crashed."""
    crashed = CheckResult("test_a1", "local", ("A1",), "error", reason="ZeroDivisionError: division by zero")
    return page(place, write(place, [*passing()[:5], crashed], selected_all=False))


def gpu(place: Path) -> Path:
    """A transport that carries GPU memory, on three engines, over two nodes."""
    target = FakeTarget("mine:Gpu", devices="cpu, cuda")
    target.capabilities = dataclasses.replace(target.capabilities, devices=("cpu", "cuda"), nodes=2)
    engines = ("local", "cluster", "ray")
    flaky = failing("D1", "cluster", flaky=True, stacks="sink main\n  lock.acquire()", happened="It tore.")
    again = failing("D1", "ray", happened="It tore there too.")
    results = [r for r in passing(*engines) if (r.clauses[0], r.engine) not in {("D1", "cluster"), ("D1", "ray")}]
    return page(place, write(place, [*results, flaky, again], *engines, target=target))


def hostile(place: Path) -> Path:
    """Names and texts that try to break out, or are merely hard to set."""
    results = passing(besides=MUST[: len(HOSTILE)])
    for clause, text in zip(MUST, HOSTILE, strict=False):
        steps = (
            *STEPS,
            Step(7, 0.01, text, text, text, text, 0.02, f"raised {text}"),
            Step(8, 0.03, "sink", "main", text, text, None, text),
        )
        told = failing(
            clause, happened=text, example=(text, text), history=steps, error=text, stacks=text, crash=text, replay=text
        )
        results.append(dataclasses.replace(told, name=text, facts={text: text}))
    target = FakeTarget("".join(HOSTILE[:5]), note=HOSTILE[5], **{HOSTILE[6]: HOSTILE[7]})
    cells = made_benchmarks.named("".join(HOSTILE[:7]), problem=HOSTILE[7] + HOSTILE[8])
    return page(place, write(place, results, target=target, benchmarks=cells))


def benchmarks(place: Path) -> Path:
    """Every benchmark, beside another transport and against an earlier version."""
    cells = made_benchmarks.full(peers={"ray:NIXL": 1.4}, baseline=1.2)
    return page(place, write(place, passing(), benchmarks=cells))


def odd_benchmarks(place: Path) -> Path:
    """Benchmarks in which hardly anything went well."""
    return page(place, write(place, passing(), benchmarks=made_benchmarks.odd()))


def ten_transports(place: Path) -> Path:
    """Ten runs side by side, eight of them with benchmarks."""
    reports = []
    for number in range(10):
        broken = MUST[number * 3 : number * 4]
        target = FakeTarget(f"transports.number{number}:Transport{number}", buffers="never" if number % 3 else "tried")
        target.capabilities = dataclasses.replace(target.capabilities, can_abort=number % 4 != 3)
        fine = [r for r in passing(besides=broken) if target.applies(contract.clause(r.clauses[0]))]
        bad = [failing(clause) for clause in broken if target.applies(contract.clause(clause))]
        cells = made_benchmarks.some(speed=2e9 * (1 + number), seed=number) if number < 8 else []
        report = write(place / str(number), [*fine, *bad], target=target, benchmarks=cells)
        reports.append((report, json_report.read(report)))
        if number % 2:
            folder.write_pages(report.parent, reports[-1][1])
    return folder.write_comparison(place, reports)


def hostile_pair(place: Path) -> Path:
    """Two runs with impossible names, one of them with results that the other has not."""
    reports = []
    for number, results in enumerate(([*passing(besides=["G4"]), failing("G4", happened="".join(HOSTILE))], passing())):
        report = write(place / HOSTILE[1] / str(number), results, target=FakeTarget("".join(HOSTILE)))
        folder.write_pages(report.parent, json_report.read(report))
        reports.append((report, json_report.read(report)))
    return folder.write_comparison(place, reports)


def page(place: Path, report: Path) -> Path:
    """The page of one report."""
    return folder.write_pages(place, json.loads(report.read_text()))


RUNS: dict[str, Callable[[Path], Path]] = {
    make.__name__: make
    for make in (no_failures, one_failure, deviations, forty_failures, nothing_run, partial, gpu, hostile)
}
BENCHMARKS: dict[str, Callable[[Path], Path]] = {make.__name__: make for make in (benchmarks, odd_benchmarks)}
COMPARISONS: dict[str, Callable[[Path], Path]] = {make.__name__: make for make in (ten_transports, hostile_pair)}
PAGES = RUNS | BENCHMARKS | COMPARISONS
