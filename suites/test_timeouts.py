"""FETCH: timeouts while the source stands still, so that nothing arrives however long one waits."""

from __future__ import annotations

from rdt_conformance.checks import Case, check
from rdt_conformance.engines.world import Process

TENSORS = 8
TIMEOUT = 0.5
SLACK = 1.5
"""Seconds by which a timeout may be missed, on any machine, but not each time."""
TIMES = 3


@check("F3", situational=("F3",))
def test_a_timeout_is_for_all_tensors_of_an_object_together(case: Case) -> None:
    """Each may be moved by itself. It takes processes that can be stopped, and data that do not come then."""
    source, destination = case.actors(2)
    missed = []
    for _ in range(TIMES):
        seconds = _seconds_in_a_wait(case, source, destination)
        if seconds is None:
            return
        if seconds <= TIMEOUT + SLACK:
            case.witness("F3")
            return
        missed.append(f"{seconds:.3g} s")
    case.require(
        False,
        "F3",
        f"a wait with a timeout of {TIMEOUT:g} s for an object of {TENSORS} tensors, whose source stood still, took "
        f"{' and '.join(missed)}",
    )


def _seconds_in_a_wait(case: Case, source: Process, destination: Process) -> float | None:
    """In one that timed out; None if none did."""
    tensors = source.build(case.payload(TENSORS * 1_000, TENSORS), case.bench.device)
    obj_id, metadata = case.described(source, tensors)
    comm = case.comm_for_get(destination)
    with source.paused() as stopped:
        fetching = destination.fetch(obj_id, metadata, comm)
        if not stopped or not fetching.wait(TIMEOUT + SLACK):
            waiting = None  # some ask the source before they return
        elif case.error(fetching, "F3") is not None:
            waiting = None  # nor have all of them the patience that this takes
        else:
            waiting = destination.wait(obj_id, case.ok(fetching), TIMEOUT)
            waiting.wait(TENSORS * TIMEOUT + SLACK)
    timed_out = waiting is not None and isinstance(case.error(waiting, "F3"), TimeoutError)
    steps = [step for step in case.world.history.steps() if step.what.startswith("wait_fetch_complete")]
    if case.error(fetching, "F3") is None:
        case.ok(fetching).drop()
    case.ok(source.collect(obj_id, metadata, tensors), "G2")
    return (steps[-1].ended or steps[-1].at) - steps[-1].at if timed_out else None
