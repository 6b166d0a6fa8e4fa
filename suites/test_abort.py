"""ABORT: a transfer that cannot succeed any more ends when it is told to, and nothing else does."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.attempts import (
    BOTH,
    FETCH,
    RECEIVE,
    RECEIVE_ALONE,
    SEND_ALONE,
    Attempt,
    attempts,
    complete_ways,
)
from rdt_conformance.checks.leaks import expect_no_growth
from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference import user_code
from rdt_conformance.payloads.watching import Fingerprint


@check("A1", "A9", situational=("A1", "A9", "A10"))
def test_abort_ends_a_blocked_receive(case: Case) -> None:
    source, destination = case.actors(2)
    for attempt in attempts(case, source, destination, case.draw(st.sampled_from(_ways(case)), "to be aborted")):
        attempt.begin()
        attempt.let_block()
        if attempt.end():
            case.witness("A1", "A9", "A10")
            break


@check("A2", "A9", situational=("A2", "A9", "A10"))
def test_abort_ends_a_blocked_send(case: Case) -> None:
    source, destination = case.actors(2)
    for attempt in attempts(case, source, destination, SEND_ALONE):
        attempt.begin()
        attempt.let_block()
        if attempt.end():
            case.witness("A2", "A9", "A10")
            break


@check("A10", situational=("A10",))
def test_the_claim_to_abort_is_seen_at_work(case: Case) -> None:
    """One way in which a transfer can be interrupted is enough."""
    source, destination = case.actors(2)
    stuck = None
    for way in [RECEIVE_ALONE, SEND_ALONE] if _two_sided(case) else [FETCH, RECEIVE]:
        for attempt in attempts(case, source, destination, way):
            attempt.begin()
            attempt.let_block()
            if not attempt.is_under_way():
                continue
            attempt.abort()
            if not attempt.main_call.wait(case.patience.abort):
                stuck = attempt
                case.leave_dirty()
                break
            if attempt.has_failed():
                case.witness("A10")
                return
    if stuck is not None:
        case.error(stuck.main_call, "A10", case.patience.abort)


@check("A3")
def test_abort_after_the_end_changes_nothing(case: Case) -> None:
    """The same object goes to the same actor again, as an argument of a later task or by a later get."""
    payload = case.payload(case.draw(st.sampled_from([100, 5_000, 300_000]), "bytes"))
    aborts = case.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4), "aborts after each transfer")
    ways = case.draw(
        st.lists(st.sampled_from(complete_ways(case)), min_size=len(aborts) + 1, max_size=len(aborts) + 1),
        "received as",
    )
    source, destination = case.actors(2)
    first = Attempt.of_new_object(case, source, destination, ways[0], payload)
    arrived = []
    for times, way in zip([*aborts, 0], ways, strict=True):
        following = first.sibling(destination, way, same_object=True)
        following.begin()
        arrived.append(following.complete("A3"))
        for _ in range(times):
            following.abort()
    for held in arrived:
        case.arrived(held, payload, clause="A3")


@check("A3")
def test_abort_of_an_unknown_object_changes_nothing(case: Case) -> None:
    """It may be meant for a receive that is still queued, so one receive of that object may fail, once."""
    payload = case.payload(case.draw(st.sampled_from([100, 5_000]), "bytes"))
    way = case.draw(st.sampled_from(complete_ways(case)), "received as")
    source, destination = case.actors(2)
    unknown = Attempt.of_new_object(case, source, destination, way, payload)
    for _ in range(case.draw(st.integers(1, 3), "aborts")):
        unknown.abort()
    first, second = (unknown.sibling(destination, way, same_object=True) for _ in range(2))
    first.begin()
    if case.error(first.main_call, "A3") is None:
        first.complete("A3")
    elif first.send is not None:
        first.abort(source)
        case.error(first.send, "A2", case.patience.abort)
    second.begin()
    second.complete("A3")


@check("A3")
def test_aborts_of_what_has_ended_add_up_to_nothing(case: Case) -> None:
    source, destination = case.actors(2)
    way = complete_ways(case)[0]

    def complete() -> Attempt:
        attempt = Attempt.of_new_object(case, source, destination, way, case.payload(100))
        attempt.begin()
        attempt.complete("A3")
        attempt.free()
        return attempt

    def cycle() -> None:
        complete().abort()
        unknown = Attempt.of_new_object(case, source, destination, way, case.payload(100))
        unknown.abort()
        unknown.free()

    expect_no_growth(case, cycle, "A3", control=complete)


@check("A4", situational=("A4", "A4b"))
def test_aborts_may_be_repeated(case: Case) -> None:
    """One after the other on Ray's own thread, and on a second thread at the same time."""
    source, destination = case.actors(2)
    way = case.draw(st.sampled_from(_ways(case, sends=True)), "to be aborted")
    times = case.draw(st.integers(2, 6), "aborts on each thread")
    for attempt in attempts(case, source, destination, way):
        attempt.begin()
        under_way = attempt.is_under_way()
        aborts = [
            side.abort(attempt.obj_id, attempt.comm, lane=lane)
            for _ in range(times)
            for side in attempt.sides
            for lane in (Lane.ERROR, Lane.IO)
        ]
        raised = [error for abort in aborts if (error := case.error(abort, "A4", case.patience.abort)) is not None]
        case.advise(not raised, "A4b", f"{len(raised)} of {len(aborts)} aborts of one object raised {raised[:1]}")
        attempt.end()
        if under_way and attempt.has_failed():
            case.witness("A4")
            attempt.again("A4")
            break


@check("A5", situational=("A5",), tries=4)
def test_abort_of_one_transfer_leaves_others_undisturbed(case: Case) -> None:
    source, destination, other = case.actors(3, first_at_one_end=True)
    same_object = case.draw(st.booleans(), "both of the same object")
    way, beside = case.draw(_pairs(case), "to be aborted, and to go on")
    # What tells two one-sided transfers of one object into one process apart is not for the transport to know.
    beside_in = other if same_object or _two_sided(case) else destination
    for attempt in attempts(case, source, destination, way):
        # It has to begin first, as they may share a thread, and so has to take longer to be under way at the abort.
        survivor = attempt.sibling(beside_in, beside, same_object=same_object, times=4)
        survivor.begin()
        attempt.begin()
        interrupted = attempt.end()
        survivor.complete("A5")
        if not same_object:
            survivor.free()
        if interrupted:
            case.witness("A5")
            break


@check("A6", situational=("A6",))
def test_nothing_is_written_after_an_abort(case: Case) -> None:
    if not case.target.takes_buffers:
        case.witness("A6")  # memory of the receiver's never comes to it
        return
    source, destination = case.actors(2)
    way = case.draw(st.sampled_from(_ways(case)), "to be aborted")
    tensors = case.draw(st.sampled_from([1, 3, 40]), "tensors")
    lane = Lane.MAIN if way == FETCH else Lane.SYSTEM
    for attempt in attempts(case, source, destination, way, tensors=tensors, at_least=8 << 20):
        buffers = destination.make(case.kind.buffers, attempt.payload, case.bench.device)
        attempt.begin(buffers)
        # A transport that takes no memory of the receiver's cannot write into it either.
        refused = attempt.main_call.done() and attempt.has_failed()
        # Queued right behind the call, so that nothing can be written unseen in between.
        looking = destination.run(user_code.apply, buffers.key, case.kind.fingerprint, (), lane=lane)
        if attempt.end() or refused:
            case.witness("A6")
            if way == RECEIVE_ALONE:
                attempt.send_too_late()
            attempt.another("A6")
            changes = buffers.apply(_changes, case.ok(looking))
            case.require(not changes, "A6", f"after the receive had ended with an error: {'; '.join(changes[:2])}")
            break


@check("A7", situational=("A7",))
def test_aborted_transfers_add_up_to_nothing(case: Case) -> None:
    source, destination = case.actors(2)
    caught = {}
    for way in _ways(case, sends=True):
        for attempt in attempts(case, source, destination, way):
            if attempt.is_interrupted():
                caught[way] = attempt.payload
                case.witness("A7")
                break

    def cycle() -> None:
        for way, payload in caught.items():
            attempt = Attempt.of_new_object(case, source, destination, way, payload)
            attempt.begin()
            attempt.end()
            attempt.free()

    def complete() -> None:
        attempt = Attempt.of_new_object(case, source, destination, complete_ways(case)[0], case.payload(100))
        attempt.begin()
        attempt.complete("A7")
        attempt.free()

    if caught:
        most = max(payload.nbytes for payload in caught.values())
        expect_no_growth(case, cycle, "A7", payload_bytes=most, control=complete)


@check("A8", situational=("A8",), tries=5)
def test_the_same_actors_transfer_again_after_an_abort(case: Case) -> None:
    source, destination = case.actors(2)
    way = case.draw(st.sampled_from(_ways(case, sends=True)), "to be aborted")
    times = case.draw(st.integers(1, 3), "aborted transfers")
    tensors = case.draw(st.sampled_from([3, 1, 40, 8]), "tensors")
    after = case.draw(st.sampled_from([0.4, 0.7, 0.0, 0.8]), "aborted after such a part of its time")
    for attempt in attempts(case, source, destination, way, tensors=tensors, at_least=8 << 20 if after else 0):
        interrupted = attempt.is_interrupted(after=after and after * attempt.time_of_another("A8"))
        after = 0.3 if after > 0.5 else 0.0  # it was too late
        for _ in range(times - 1):
            following = attempt.sibling(destination, way, same_object=False)
            following.is_interrupted()
            following.free()
        if interrupted:
            case.witness("A8")
            attempt.again("A8")
            attempt.another("A8")
            attempt.another("A8", backwards=True)
            break


@check("A8", situational=("A8",))
def test_transfers_go_on_when_what_was_aborted_is_freed_at_once(case: Case) -> None:
    """Memory that is freed may be gone while somebody still reads it, and a connection may be lost with it."""
    source, destination = case.actors(2)
    way = case.draw(st.sampled_from(complete_ways(case)), "to be aborted")
    after = case.draw(st.sampled_from([0.0, 0.002, 0.01]), "seconds until the abort")
    lasting = Attempt.of_new_object(case, source, destination, way, case.payload(256))
    lasting.again("A8")
    large = case.payload(min(case.budget.big_bytes, 64 << 20))
    for _ in range(5):
        attempt = Attempt.of_new_object(case, source, destination, way, large)
        if attempt.is_interrupted(after=after):
            case.witness("A8")
        attempt.free()
        lasting.again("A8")


def _two_sided(case: Case) -> bool:
    return not case.target.one_sided.value


def _ways(case: Case, *, sends: bool = False) -> list[str]:
    """How a receive, or with `sends` also a send, is brought to where it can be aborted."""
    if _two_sided(case):
        return [RECEIVE_ALONE, BOTH, SEND_ALONE] if sends else [RECEIVE_ALONE, BOTH]
    return [FETCH, RECEIVE]


def _pairs(case: Case) -> st.SearchStrategy[tuple[str, str]]:
    """Ways for two transfers from one source; an actor has one thread for its receives and sends."""
    if _two_sided(case):
        waiting = [(way, RECEIVE_ALONE) for way in (RECEIVE_ALONE, BOTH, SEND_ALONE)]
        return st.sampled_from([*waiting, (RECEIVE_ALONE, SEND_ALONE)])
    return st.sampled_from([(FETCH, FETCH), (FETCH, RECEIVE), (RECEIVE, FETCH)])


def _changes(tensors: list[Any], before: Fingerprint) -> list[str]:
    return before.changes(tensors)
