"""Examples are tried one after the other, whatever the transport and the check itself make of them."""

from __future__ import annotations

import itertools
import threading
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
