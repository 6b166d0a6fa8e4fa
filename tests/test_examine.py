"""Examples are tried one after the other, whatever the transport and the check itself make of them."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from check_run import bench_of, run_check
from hypothesis import strategies as st

from rdt_conformance.checks import Case, check, examine
from rdt_conformance.engines.reference import thread_errors
from rdt_conformance.report.story import render
from reference_transports.inline import InlineTransport

pytestmark = pytest.mark.timeout(60)


def test_the_same_choices_may_lead_to_other_questions() -> None:
    """As where what is asked for next depends on threads of the transport's own, which no choice decides."""
    turns = itertools.count()

    @check("L1")
    def asks_now_and_then(case: Case) -> None:
        case.draw(st.booleans(), "first")
        if next(turns) % 5:
            case.draw(st.integers(), "second")

    result = run_check(bench_of(InlineTransport, torch.Tensor), asks_now_and_then)
    assert (result.outcome, result.failures) == ("passed", ())
    assert result.examples > 10
    assert result.facts["led to other questions than before"]["repeated choices"] > 0


def test_a_check_that_asks_something_else_each_time_has_seen_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "_SEARCHES", 3)
    turns = itertools.count()

    @check("L1")
    def never_asks_the_same(case: Case) -> None:
        case.draw(st.booleans() if next(turns) % 2 else st.integers(), "of another kind each time")

    result = run_check(bench_of(InlineTransport, torch.Tensor), never_asks_the_same)
    assert (result.outcome, result.failures) == ("not run", ())
    assert result.reason == "the same choices led to other questions in each of 3 searches"


def test_a_crash_of_a_check_is_told_although_it_does_not_come_again() -> None:
    turns = itertools.count(1)

    @check("L1")
    def crashes_once(case: Case) -> None:
        case.draw(st.integers(), "number")
        if next(turns) == 4:
            raise ZeroDivisionError("of the check")

    with pytest.raises(ZeroDivisionError):
        run_check(bench_of(InlineTransport, torch.Tensor), crashes_once)


class Fragile(InlineTransport):
    """Receives on a thread of its own, which fails; whoever waits for it learns no more than that nothing came."""

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        def receive() -> None:
            raise ValueError("the cable is broken")

        receiving = threading.Thread(target=receive, name="receiving")
        receiving.start()
        receiving.join()
        raise RuntimeError("nothing came")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_ended_a_thread_of_the_transports_own_stands_beside_the_failure() -> None:
    before = threading.excepthook
    bench = bench_of(Fragile, torch.Tensor)
    (failure,) = run_check(bench, "test_a_produced_object_is_consumed").failures
    bench.close()
    assert "RuntimeError: nothing came" in failure.error and "cable" not in failure.error
    assert failure.crash.startswith("thread 'receiving':\n")
    assert failure.crash.endswith("\nValueError: the cable is broken")
    assert "Last words of what ended by itself" in render(failure)
    assert threading.excepthook is before
    assert not thread_errors._listening, "of any world of any test"


def test_a_check_tries_a_few_examples_however_little_time_there_is() -> None:
    @check("L1")
    def draws(case: Case) -> None:
        case.draw(st.integers(), "number")

    @check("X1", interleaves=True)
    def draws_orders(case: Case) -> None:
        case.draw(st.integers(), "number")

    for each, least in ((draws, 2), (draws_orders, examine._LEAST_ORDERS)):
        bench = bench_of(InlineTransport, torch.Tensor)
        bench.alone, bench.budget = False, replace(bench.budget, seconds=0)
        result = run_check(bench, each)
        assert (result.outcome, result.examples) == ("passed", least)


def test_a_rare_thing_is_looked_for_as_many_times_as_long() -> None:
    @check("L1", tries=3)
    def draws(case: Case) -> None:
        case.draw(st.integers(), "number")

    bench = bench_of(InlineTransport, torch.Tensor)
    assert run_check(bench, draws).examples == 3 * bench.budget.examples


def test_only_the_clause_that_broke_counts_as_seen() -> None:
    bodies = itertools.count(1)

    @check("D1", "L2", situational=("L3",))
    def breaks(case: Case) -> None:
        next(bodies)
        case.witness("L3")
        case.require(False, "L2", "it went wrong")

    result = run_check(bench_of(InlineTransport, torch.Tensor), breaks)
    assert (result.outcome, result.seen) == ("broken", ("L2",))
    assert next(bodies) == 2  # nothing was chosen, and so nothing is looked at again
    assert result.failures[0].twin is None


def test_the_twin_is_the_example_that_differs_least() -> None:
    @check("L1")
    def breaks_at_seven(case: Case) -> None:
        number = case.draw(st.integers(0, 15), "number")
        letter = case.draw(st.sampled_from("ab"), "letter")
        case.require(number < 7, "L1", f"{number}{letter} is too much")

    failure = run_check(bench_of(InlineTransport, torch.Tensor), breaks_at_seven).failures[0]
    assert failure.example == ("number = 7", "letter = 'a'")
    assert failure.twin is not None and failure.twin.example[1] == "letter = 'a'"


class Deaf(InlineTransport):
    """Takes nothing at all."""

    def extract_tensor_transport_metadata(self, *args: Any) -> Any:
        raise ValueError("not today")


def test_a_transport_that_takes_nothing_breaks_one_clause_once() -> None:
    @check("L1")
    def delivers(case: Case) -> None: ...

    @check("D1")
    def keeps_bytes(case: Case) -> None: ...

    bench = bench_of(Deaf, torch.Tensor)
    results = [run_check(bench, each) for each in (keeps_bytes, delivers, delivers)]
    assert [(result.outcome, result.reason) for result in results] == [
        ("not run", "nothing can be sent, see L1"),
        ("broken", ""),
        ("not run", "nothing can be sent, see L1"),
    ]
    assert [failure.clause for failure in results[1].failures] == ["L1"]


def test_whoever_interrupts_a_check_ends_it() -> None:
    @check("L1")
    def is_interrupted(case: Case) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_check(bench_of(InlineTransport, torch.Tensor), is_interrupted)
