"""What the gate says of two results, and of one and an earlier report."""

from __future__ import annotations

import numpy as np
import pytest

from rdt_conformance.bench import gate
from rdt_conformance.bench.cells import tensors
from rdt_conformance.bench.contests import Contests
from rdt_conformance.bench.local import LocalPair
from rdt_conformance.bench.loop import Sample, Series
from rdt_conformance.bench.results import CellResult, Change, Finding, Role, Row, summarize
from rdt_conformance.bench.statistics import Interval, Verdict
from rdt_conformance.target import resolve

NBYTES = 1 << 20


def _series(seconds: float, seed: int, counters: dict[str, float]) -> Series:
    took = seconds * np.random.default_rng(seed).normal(1, 0.03, 200)
    samples = [Sample(extract=each / 2, wait=each / 2, whole=each, cpu=each) for each in took]
    return Series(samples[:4], samples, len(samples), counters)


def _cell(
    seconds: float, others: dict[str, tuple[Role, float]], counters: dict[str, float] | None = None, seed: int = 0
) -> CellResult:
    own = _series(seconds, seed, counters or {})
    result = CellResult("test_it", "1 MiB", "local", NBYTES, 1, False)
    result.rows.append(summarize("it", "transport", own, own, NBYTES, 0))
    for number, (name, (role, took)) in enumerate(others.items(), 1):
        result.rows.append(summarize(name, role, _series(took, seed + number, {"metadata_bytes": 300}), own, NBYTES, 0))
    return result


def _against(slower: float, floor: float = 1.0, **counters: float) -> dict[str, Verdict]:
    others: dict[str, tuple[Role, float]] = {"other": ("baseline", 1e-3), "other again": ("again", 1e-3 * floor)}
    return {found.what: found.verdict for found in gate.against(_cell(1e-3 * slower, others, counters))}


@pytest.mark.parametrize(
    ("slower", "floor", "said"),
    [
        (1.0, 1.0, Verdict.SAME),
        (1.03, 1.0, Verdict.SAME),
        (1.1, 1.0, Verdict.WORSE),
        (0.9, 1.0, Verdict.BETTER),
        (1.05, 1.0, Verdict.INCONCLUSIVE),
        (1.1, 1.2, Verdict.INCONCLUSIVE),
    ],
)
def test_times_against_another_transport(slower: float, floor: float, said: Verdict) -> None:
    assert _against(slower, floor) == {"time": said}


def test_counters_do_not_care_for_noise() -> None:
    assert _against(1.0, metadata_bytes=301) == {"time": Verdict.SAME}
    assert _against(1.0, metadata_bytes=600)["metadata bytes"] is Verdict.WORSE
    assert _against(1.0, metadata_bytes=100)["metadata bytes"] is Verdict.BETTER


@pytest.mark.parametrize(("now", "said"), [(1.0, None), (1.1, None), (2.0, Verdict.WORSE), (0.5, Verdict.BETTER)])
def test_copies_since_an_earlier_report(now: float, said: Verdict | None) -> None:
    earlier, later = _cell(1e-3, {}, {"copies": 1.0}), _cell(1e-3, {}, {"copies": now})
    found = {finding.what: finding.verdict for finding in gate.since(later, earlier, comparable=False)}
    assert found.get("copies") is said


LIMITS: dict[str, tuple[Role, float]] = {"memcpy": ("ceiling", 2e-4), "socket": ("ceiling", 5e-4)}


def _since(slower: float, machine: float = 1.0, socket: float = 1.0, *, comparable: bool = True) -> Finding:
    """The transport is slower, the whole machine is, or only one of its limits."""
    limits: dict[str, tuple[Role, float]] = {
        "memcpy": ("ceiling", 2e-4 * machine),
        "socket": ("ceiling", 5e-4 * machine * socket),
    }
    return gate.since(_cell(1e-3 * slower * machine, limits, seed=10), _cell(1e-3, LIMITS), comparable=comparable)[0]


def test_times_since_an_earlier_report_are_in_relation_to_the_machine() -> None:
    assert _since(1.0, machine=3.0).verdict is Verdict.SAME
    assert _since(1.25).verdict is Verdict.INCONCLUSIVE
    assert _since(1.5).verdict is _since(1.5, machine=0.5).verdict is Verdict.WORSE
    assert _since(0.6).verdict is Verdict.BETTER


def test_all_relations_have_to_agree() -> None:
    assert _since(1.5, socket=1.5).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdicts", "agreed"),
    [
        ("worse worse inconclusive", Verdict.WORSE),
        ("worse inconclusive inconclusive", Verdict.INCONCLUSIVE),
        ("worse inconclusive", Verdict.INCONCLUSIVE),
        ("worse worse worse same", Verdict.INCONCLUSIVE),
        ("same", Verdict.SAME),
        ("", Verdict.INCONCLUSIVE),
    ],
)
def test_what_says_nothing_has_no_veto(verdicts: str, agreed: Verdict) -> None:
    assert gate._agreed([Verdict(verdict) for verdict in verdicts.split()]) is agreed


def test_times_of_another_machine_are_not_judged() -> None:
    found = _since(2.0, comparable=False)
    assert found.verdict is Verdict.INCONCLUSIVE and "another machine" in found.words


def test_what_has_no_numbers_is_not_compared() -> None:
    good = _cell(1e-3, LIMITS)
    bad = CellResult("test_it", "1 MiB", "local", NBYTES, 1, False, [Row("it", "transport", problem="wrong data")])
    assert gate.since(good, bad, comparable=True) == gate.since(bad, good, comparable=True) == []
    assert gate.against(bad) == gate.against(good) == []


def test_a_result_comes_back_from_json() -> None:
    cell = _cell(1e-3, LIMITS, {"metadata_bytes": 300})
    assert CellResult.from_json(cell.to_json()) == cell
    assert isinstance(CellResult.from_json(cell.to_json()).rows[1].speed, Interval)


def test_percentiles_are_left_out_where_samples_are_few() -> None:
    assert set(_cell(1e-3, {}).rows[0].percentiles) == {"50", "90"}


WORSE, SAME, UNSURE = Verdict.WORSE, Verdict.SAME, Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("said", "middle", "tried"),
    [
        pytest.param([SAME], 1.0, 1, id="the same at once"),
        pytest.param([WORSE, WORSE], 1.2, 2, id="worse, and worse in other processes"),
        pytest.param([WORSE, SAME], 1.2, 2, id="worse in one pair of processes only"),
        pytest.param([UNSURE], 1.03, 1, id="unsure, and hardly different"),
        pytest.param([UNSURE, WORSE, WORSE], 1.2, 3, id="different but unsure, then worse twice"),
        pytest.param([UNSURE, WORSE, SAME], 1.2, 3, id="different but unsure, then worse once"),
        pytest.param([UNSURE, UNSURE], 1.2, 2, id="unsure twice"),
    ],
)
def test_what_looks_different_is_measured_anew_in_other_processes(
    said: list[Verdict], middle: float, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(LocalPair, "close", lambda _: closed.append(True))
    change = Change("", Interval(middle, middle, middle, 99), 0.05)
    findings = iter([Finding("time", each, "", (change,)) for each in said])
    monkeypatch.setattr(Contests, "_measure_until_told", lambda *_: next(findings))
    target = resolve("inline")
    contests = Contests(target, (), "inline", gated=True, seconds=1, seed=0, bench=lambda _: pytest.fail("none"))
    contests.measure("a benchmark", tensors(64, 1))
    assert (next(findings, None), len(closed)) == (None, tried - 1)
