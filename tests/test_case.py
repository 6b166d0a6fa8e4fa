"""What a check works with: what is drawn is told, and what goes wrong is blamed on the right clause, in plain words."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from check_run import bench_of, run_check
from hypothesis import strategies as st

from rdt_conformance.checks import Case, case as cases, check, examine
from rdt_conformance.checks.bench import Bench
from rdt_conformance.checks.budget import PROFILES
from rdt_conformance.checks.leaks import expect_no_growth
from rdt_conformance.checks.orders import Interruption
from rdt_conformance.results import CheckResult, Failure
from reference_transports.inline import InlineTransport

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def bench() -> Bench:
    return bench_of(InlineTransport, torch.Tensor)


def failure_of(result: CheckResult) -> Failure:
    (failure,) = result.failures
    return failure


@pytest.mark.parametrize(("length", "shown"), [(298, 300), (299, 300), (1000, 300)])
def test_what_is_drawn_is_shown_up_to_a_length(bench: Bench, length: int, shown: int) -> None:
    @check("L1")
    def draws(case: Case) -> None:
        case.draw(st.just("x" * length))
        case.draw(st.just(3), "three")
        case.tell("does something")
        case.tell("does something else")
        case.require(False, "L2", lambda: "it went wrong")

    failure = failure_of(run_check(bench, draws))
    assert (failure.clause, failure.happened) == ("L2", "it went wrong")
    value, *others = failure.example
    assert len(value.removeprefix("value = ")) == shown and value.endswith("'" if length == 298 else "x…")
    assert others == ["three = 3", "1. does something", "2. does something else"]


def test_what_is_gone_through_stands_in_one_line(bench: Bench) -> None:
    @check("L1")
    def goes_through(case: Case) -> None:
        case.draw(st.just(7), "first")
        for number in (7, 8, 9):
            case.going_through("number", number)
        case.require(False, "L1", "the last one was wrong")

    assert failure_of(run_check(bench, goes_through)).example == ("first = 7", "number = 9")


@pytest.mark.parametrize(
    ("count", "more"), [(1, ""), (2, " (and 1 more differences)"), (3, " (and 2 more differences)")]
)
@pytest.mark.parametrize("clause", [None, "D2"])
def test_what_arrives_changed_is_told_once(bench: Bench, count: int, more: str, clause: str | None) -> None:
    @check("D1", "L2")
    def arrives(case: Case) -> None:
        source, destination = case.actors(2)
        sent = case.payload(64, count)
        obj_id, metadata = case.described(source, source.build(sent))
        received = case.ok(destination.recv(obj_id, metadata, case.comm_for_get(destination)))
        case.arrived(received, sent)
        case.arrived(received, sent.inverse(), clause=clause)

    result = run_check(bench, arrives)
    failure = failure_of(result)
    assert failure.clause == (clause or "D1")
    assert failure.happened.startswith("what arrived at actor2 differs: tensor 0: byte ")
    assert failure.happened.endswith(f"bytes differ{more}")
    assert result.transfers == 1


def test_advice_is_of_should_clauses_only(bench: Bench) -> None:
    @check("L1", situational=("G3b",))
    def advises(case: Case) -> None:
        case.advise(True, "G3b", "all is well")

    @check("L1", situational=("G3b",))
    def warns(case: Case) -> None:
        case.advise(False, "G3b", "it could be nicer")
        case.witness("L1")

    @check("L1")
    def advises_what_is_a_must(case: Case) -> None:
        case.advise(True, "G3", "no matter")

    fine, warned = run_check(bench, advises), run_check(bench, warns)
    assert (fine.outcome, fine.failures, set(fine.seen)) == ("passed", (), {"L1", "G3b"})
    assert (warned.outcome, failure_of(warned).clause, failure_of(warned).happened) == (
        "passed", "G3b", "it could be nicer",
    )  # fmt: skip
    with pytest.raises(AssertionError, match="G3 is no SHOULD clause"):
        run_check(bench, advises_what_is_a_must)


class Refusing(InlineTransport):
    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        raise ValueError("never")


@pytest.mark.parametrize("clause", [None, "L2"])
def test_what_has_to_succeed_is_blamed_on_the_first_clause_or_another(clause: str | None) -> None:
    @check("D1", "L3", sends=False)  # that it refuses everything is for another check to say
    def receives(case: Case) -> None:
        source, destination = case.actors(2)
        obj_id, metadata = case.described(source, source.build(case.payload()))
        pending = destination.recv(obj_id, metadata, case.comm_for_get(destination))
        if clause is None:
            assert "never" in str(case.error(destination.recv(obj_id, metadata, case.comm_for_get(destination))))
        case.ok(pending, clause)

    failure = failure_of(run_check(bench_of(Refusing, torch.Tensor), receives))
    assert failure.clause == (clause or "D1")
    assert "raised ValueError: never" in failure.happened


class Slow(InlineTransport):
    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        _over.wait(10)
        return super().recv_multiple_tensors(*args, **kwargs)


_over = threading.Event()


@pytest.mark.parametrize("clause", [None, "L3"])
@pytest.mark.parametrize("asked", ["ok", "error"])
def test_what_does_not_come_back_is_blamed_on_the_first_clause_or_another(asked: str, clause: str | None) -> None:
    @check("D1", "L3", sends=False)
    def receives(case: Case) -> None:
        source, destination = case.actors(2)
        obj_id, metadata = case.described(source, source.build(case.payload()))
        pending = destination.recv(obj_id, metadata, case.comm_for_get(destination))
        try:
            getattr(case, asked)(pending, clause, 0.1)
        finally:
            _over.set()

    _over.clear()
    failure = failure_of(run_check(bench_of(Slow, torch.Tensor), receives))
    assert failure.clause == (clause or "D1") and "did not come back within 0.1 s" in failure.happened


def test_waits_are_noted_in_seconds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[float] = []
    monkeypatch.setattr(bench, "note_wait", noted.append)

    @check("L1")
    def waits(case: Case) -> None:
        source, destination = case.actors(2)
        obj_id, metadata = case.described(source, source.build(case.payload()))
        case.error(destination.recv(obj_id, metadata, case.comm_for_get(destination)))

    began = time.monotonic()
    assert run_check(bench, waits).outcome == "passed"
    assert len(noted) >= 3
    assert all(0 <= seconds <= time.monotonic() - began for seconds in noted)


def test_a_gpu_is_needed_for_each_actor_where_nothing_is_carried_within_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "lack_of_gpus", lambda count: f"needs {count} GPUs" if count > 3 else "")
    counts: list[int] = []

    @check("L1")
    def hires(case: Case) -> None:
        counts[:] = [len(case.up_to(count)) for count in (2, 3, 4, 6)]
        counts.append(len(case.actors(4, first_at_one_end=True)))

    @check("L1")
    def hires_too_many(case: Case) -> None:
        case.actors(4)

    assert run_check(bench, hires).outcome == "passed"
    assert counts == [2, 3, 3, 3, 4]
    result = run_check(bench, hires_too_many)
    assert (result.outcome, result.reason) == ("not run", "needs 4 GPUs")
    monkeypatch.setattr(bench, "lack_of_gpus", lambda count: f"needs {count} GPUs")

    @check("L1")
    def hires_two(case: Case) -> None:
        case.up_to(4)

    assert run_check(bench, hires_two).reason == "needs 2 GPUs"


def test_calls_are_interrupted_before_each_line_of_every_share(bench: Bench) -> None:
    lines = [("file.py", number) for number in range(1, 11)]
    met: list[tuple[str, int]] = []

    @check("X1", interleaves=True)
    def interrupts(case: Case) -> None:
        met.clear()
        for order in case.interruptions():
            assert isinstance(order, Interruption)
            order._first = ("actor1", None)  # pyright: ignore[reportAttributeAccessIssue]
            met.extend(line for line in lines if order.interrupts("actor1", None, line))  # pyright: ignore[reportArgumentType]

    result = run_check(bench, interrupts)
    assert result.outcome == "passed"
    assert sorted(met) == lines
    assert [line % Interruption.SHARES for _, line in met] == sorted(line % Interruption.SHARES for _, line in met)
    assert "ended early, as time was over" not in result.facts


def test_interruptions_end_when_the_time_is_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.alone = False
    now = [100.0]
    monkeypatch.setattr(cases, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    limit = max(cases._SWEEP_SECONDS, cases._SWEEP_SHARE * PROFILES["quick"].seconds)
    rounds: list[int] = []

    @check("X1", interleaves=True)
    def interrupts(case: Case) -> None:
        rounds.append(0)
        for order in case.interruptions():
            assert isinstance(order, Interruption)
            order.happened = rounds[-1] < 50
            rounds[-1] += 1
            now[0] += limit / 2

    result = run_check(bench, interrupts)
    assert set(rounds) == {3}
    assert result.facts["ended early, as time was over"] == {"rounds of interruptions": len(rounds)}


def test_the_end_of_a_long_history_is_kept(bench: Bench) -> None:
    @check("D1")
    def goes_on(case: Case) -> None:
        source, destination = case.actors(2)
        for number in range(30):
            obj_id, metadata = case.described(source, source.build(case.payload(seed=number)), f"object {number}")
            case.ok(destination.recv(obj_id, metadata, case.comm_for_get(destination)))
        case.require(False, "D1", "enough")

    history = failure_of(run_check(bench, goes_on)).history
    assert [step.number for step in history] == list(range(91 - examine._STEPS, 91))  # of three calls each


def test_a_clause_that_nobody_knows_is_refused() -> None:
    for clauses in [("L99",), ("L1", "L99")]:
        with pytest.raises(KeyError):
            check(*clauses)
    with pytest.raises(KeyError):
        check("L1", situational=("L99",))


KEPT = 1000
"""Bytes."""


class KeepsLarge(InlineTransport):
    """Remembers every object from a size on."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        if sum(tensor.nbytes for tensor in rdt_object) >= KEPT:
            self.kept.append(obj_id)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@pytest.mark.parametrize(
    ("sizes", "where"),
    [((10, KEPT), "; grows with objects of 1000 bytes"), ((KEPT, KEPT + 1), ""), ((KEPT,), ""), ((10, 20), None)],
)
def test_a_leak_is_told_with_the_part_that_it_grows_with(sizes: tuple[int, ...], where: str | None) -> None:
    @check("G1")
    def makes_and_frees(case: Case) -> None:
        (source,) = case.actors(1)

        def cycle(nbytes: int) -> None:
            case.described(source, source.build(case.payload(nbytes)))

        expect_no_growth(case, {f"objects of {n} bytes": partial(cycle, n) for n in sizes}, "G1")

    bench = bench_of(KeepsLarge, torch.Tensor)
    bench.budget = replace(bench.budget, most_cycles=120)
    result = run_check(bench, makes_and_frees)
    if where is None:
        assert (result.outcome, result.failures) == ("passed", ())
        return
    failure = failure_of(result)
    assert failure.clause == "G1"
    assert failure.happened.startswith("registrations in self.kept grew from ")
    assert failure.happened.endswith(f"({'one' if len(sizes) == 1 or sizes[0] < KEPT else '2'} per cycle){where}")
