"""FAULTS of whole processes: killed and stopped, before and in the middle of a transfer, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Set
from typing import Any, TypeVar

import psutil
from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.attempts import BOTH, FETCH, GIVEN_UP, RECEIVE, RECEIVE_ALONE, Attempt, complete_ways
from rdt_conformance.checks.moves import transfer
from rdt_conformance.contract import clause
from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.worker import Settings
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.exposures import EXPOSURE, USER
from rdt_conformance.observe.devices import DRIVERS_FILES, tensor_bytes
from rdt_conformance.observe.exposure import Exposed, exposure, of_files
from rdt_conformance.observe.own_files import is_among, listen, made_below, own_files
from rdt_conformance.observe.proc import Thing
from rdt_conformance.observe.resources import SHARED_MEMORY_FILES, TEMPORARY_FILES, Watch

_Found = TypeVar("_Found")

LARGE = 8 << 20
"""Bytes that take long enough to transfer for something to happen meanwhile."""
HUGE = 64 << 20
"""Bytes that still are on their way when the receiver has been killed, also on a loaded machine."""
TRIES = 5
"""Transfers until one is caught in the middle."""
TWICE = 2
"""Answers that do not come until something is said of them: one may be late for any reason."""
NOT_JUST_LATE = 0.2
"""Seconds in which word of a call that has come back would be here."""
A_WHILE = 1.0
"""Seconds for which a source is stopped at most."""
TO_BE_SERVED = 5.0
"""Seconds in which a small object is fetched on any machine, if nothing else has to come first."""
TO_NOTICE = 5.0
"""Seconds in which a process may notice that the one that it has helped was killed."""


@check("R1")
def test_the_death_of_the_source_ends_a_transfer(case: Case) -> None:
    """Where a transfer does not end by itself, Ray takes it for lost at last and aborts it at the receiver."""
    way = case.draw(st.sampled_from(_receiving_ways(case)), "received as")
    during = case.draw(st.booleans(), "killed in the middle")
    destination, source, other = case.actors(3, first_at_one_end=True)
    case.leave_dirty()
    attempt = Attempt.of_new_object(case, source, destination, way, case.payload(LARGE if during else 5_000))
    if during:
        attempt.begin()
        source.kill()
    else:
        source.kill()
        attempt.begin_receive()
    call = attempt.main_call
    if not call.wait(A_WHILE):
        case.error(destination.abort(attempt.obj_id, attempt.comm), "A9", case.patience.abort)
    attempt.expect_exact_or_error("R1")
    _works(case, other, destination, "R1")


@check("R2", situational=("R2",))
def test_the_death_of_a_receiver_leaves_the_others_alone(case: Case) -> None:
    """A send that nobody receives any more is aborted by Ray, at the source."""
    way = case.draw(st.sampled_from(complete_ways(case)), "received as")
    source, destination, other = case.actors(3, first_at_one_end=True)
    case.leave_dirty()
    attempt = _lost_in_the_middle(case, source, destination, way)
    if attempt.send is not None:
        if not attempt.send.wait(A_WHILE):
            case.error(source.abort(attempt.obj_id, attempt.comm), "A9", case.patience.abort)
        case.error(attempt.send, "R2")
    received = transfer(
        case, source, other, attempt.obj_id, attempt.tensors, attempt.metadata, clause="R2", seconds=case.patience.call
    )
    case.arrived(received, attempt.payload, clause="R2")
    _works(case, source, other, "R2")


@check("R11")
def test_a_receiver_that_stands_still_holds_up_nobody_else(case: Case) -> None:
    """What is received too fast to be stopped on the way holds up nobody."""
    source, destination, other = case.actors(3, first_at_one_end=True)
    _works(case, source, destination, "L1")
    _works(case, source, other, "L1")  # from now on it is connected
    caught = unserved = number = 0
    # One that is caught may have been sent to its end, and lie in a buffer.
    while number < (2 * TRIES if caught else TRIES) and unserved < TWICE and caught < TRIES:
        number += 1
        small = Attempt.of_new_object(case, source, other, RECEIVE, case.payload(5_000))
        large = _large_one_on_its_way(case, source, destination, RECEIVE, seed=number)
        with destination.paused() as stopped:
            if not stopped:
                raise case.cannot("the receiver is on another machine, where it cannot be stopped")
            is_caught = not large.main_call.wait(NOT_JUST_LATE)
            small.begin()
            served = small.main_call.wait(TO_BE_SERVED) and not small.has_failed()
        large.expect_exact_or_error("L1")
        small.expect_exact_or_error("L1")
        _works(case, source, other, "L1")
        small.free()
        large.free()
        caught, unserved = caught + is_caught, unserved + (is_caught and not served)
    case.advise(
        unserved < TWICE,
        "R11",
        f"{other} got nothing from {source} in {TO_BE_SERVED:g} s in which {destination} stood still in the middle of "
        "another transfer, twice",
    )
    case.fact(
        "a receiver that stood still", ["was in the middle of a transfer" if caught else "was never caught in one"]
    )


@check("R3", situational=("A1", "A9", "A10"))
def test_a_source_that_stood_still_works_on(case: Case) -> None:
    """It is stopped before the receiver asks, and goes on when that has waited for a while or has got an answer.

    Another time, the receive is aborted meanwhile. One that does not need a send waits for nothing else.
    """
    way = case.draw(st.sampled_from(complete_ways(case)), "received as")
    source, destination = case.actors(2)
    _meet_a_stopped_source(case, source, destination, way)
    if case.target.one_sided.value and case.target.can_abort.value and case.bench.engine in clause("A1").engines:
        _meet_a_stopped_source(case, source, destination, way, aborted=True)
    _works(case, source, destination, "R3")


@check("R3", "A2", situational=("R3", "A2", "A9", "A10"))
def test_a_send_to_a_receiver_that_stands_still_can_be_aborted(case: Case) -> None:
    """The receiver has asked and takes nothing, so that the source waits for room to send."""
    if case.target.one_sided.value or not case.target.can_abort.value:
        return
    source, destination = case.actors(2)
    _works(case, source, destination, "L1")
    attempt = Attempt.of_new_object(case, source, destination, BOTH, case.payload(HUGE))
    attempt.begin_receive()
    attempt.main_call.wait(NOT_JUST_LATE)  # by now it has asked
    with destination.paused() as stopped:
        if not stopped:
            raise case.cannot("the receiver is on another machine, where it cannot be stopped")
        attempt.begin_send_blindly()
        aborted = attempt.end_send()
    if aborted:
        case.witness("A2", "A9", "A10")
        attempt.abort(destination)
    attempt.expect_exact_or_error("A1" if aborted else "L1")
    attempt.free()
    _works(case, source, destination, "A8")


@check("R5")
def test_killed_processes_leave_nothing_on_the_machine(case: Case) -> None:
    """With objects alive that have been received. What the next processes clear is not left."""
    left = [_left_by_a_killed_pair(case) for _ in range(2)]
    case.advise(
        not all(left),
        "R5",
        f"after its processes had been killed, this was still there: {', '.join(sorted(left[0])[:3])}",
    )


@check("R7")
def test_nobody_else_can_read_the_data(case: Case) -> None:
    """Whoever works across machines listens on a network; that it asks for a secret there is not seen from outside."""
    case.renew()
    source, destination = case.actors(2)
    before = _of_each(_listen, source, destination)
    exposed_before = _of_each(_exposure, source, destination)
    watch = Watch(memory=False)
    ref = source.produce(case.payload(100_000, 3))
    case.ok(destination.consume(ref), "L1")
    held = _of_each(_exposure, source, destination) - exposed_before
    held |= of_files(thing.text for thing in _of_each(_made_below, source, destination) - before)
    # Others put things there too. What is gone with the object was its, unless it was in a folder of others.
    own = _of_each(_own_files, source, destination)
    made = {thing.text for thing in _files(watch)}
    exposed = held | of_files(path for path in made if is_among(path, own) or not os.path.isdir(path))
    ref.drop()
    case.world.come_to_rest(case.patience.call)
    proven = held | {thing for thing in exposed if not os.path.exists(thing.what)}
    case.fact(EXPOSURE, sorted(proven))
    readable = [f"{thing.what} ({thing.permissions})" for thing in sorted(proven) if _is_readable(thing)]
    case.advise(
        not readable,
        "R7",
        f"other users of the machine can get at {', '.join(readable[:3])} while an object is alive",
    )


@check("A11")
def test_a_lost_transfer_of_a_transport_that_cannot_abort_ends(case: Case) -> None:
    """Ray kills both actors then, if it has to."""
    case.renew(Settings(fetch_fail_timeout=GIVEN_UP), used=True)
    source, destination = case.actors(2)
    case.leave_dirty()
    ref = source.produce(case.payload())
    case.ok(case.driver.metadata_of(ref), "L1")
    source.kill()
    receiving = destination.consume(ref)
    if case.error(receiving, "A11", 5 * GIVEN_UP + case.patience.call) is None:
        case.arrived(case.ok(receiving, "A11"), case.payload(), clause="A11")


def _receiving_ways(case: Case) -> list[str]:
    return [FETCH, RECEIVE] if case.target.one_sided.value else [RECEIVE_ALONE, BOTH]


def _lost_in_the_middle(case: Case, source: Process, destination: Process, way: str) -> Attempt:
    """A transfer whose receiver was killed; R2 has been witnessed if it was in flight for certain.

    What lies in the source's memory has not been moved anywhere, and is in use for as long as the receiver lives.
    """
    for number in range(TRIES):
        # Every second one is stopped at once: what is fast is over before its memory has been looked at.
        attempt = _large_one_on_its_way(case, source, destination, way, seed=number, some_has_come=number % 2 == 0)
        with destination.paused() as stopped:
            caught = stopped and not attempt.main_call.wait(NOT_JUST_LATE)
            if caught:
                case.witness("R2")
                case.tell(f"{destination} is killed while it receives an object from {source}")
                destination.kill()
                return attempt
        received = attempt.complete("L1")
        if number == TRIES - 1:
            if _lies_in_the_source(case, attempt, received):
                case.witness("R2")
            case.tell(f"{destination} is killed when it has received an object from {source}")
            destination.kill()
            return attempt
        attempt.free()
    raise AssertionError("TRIES is 0")


def _large_one_on_its_way(
    case: Case, source: Process, destination: Process, way: str, *, seed: int, some_has_come: bool = True
) -> Attempt:
    """A transfer of which some has come, if it is to and if that could be seen before it was over."""
    attempt = Attempt.of_new_object(case, source, destination, way, case.payload(HUGE, seed=seed))
    before = destination.run(_memory_in_use).result()
    attempt.begin()
    attempt.begin_to_wait()
    if some_has_come:
        _wait_for_some_of_it(attempt, before + HUGE // 8, case.patience.call)
    return attempt


def _lies_in_the_source(case: Case, attempt: Attempt, received: Held) -> bool:
    """Whether what is written into received tensors is seen in those that were sent."""
    if received.apply(case.kind.traits, case.bench.device):
        return False  # it cannot all be written
    received.apply(case.kind.overwrite, attempt.payload.inverse())
    lies_there = bool(attempt.tensors.differences(attempt.payload))
    received.apply(case.kind.overwrite, attempt.payload)
    return lies_there


def _wait_for_some_of_it(attempt: Attempt, memory: int, seconds: float) -> None:
    """Until so much memory is in use at the receiver, which shows that data have come, or the transfer has ended."""
    deadline = time.monotonic() + seconds
    while not attempt.main_call.done() and time.monotonic() < deadline:
        # On a lane that no transfer keeps busy.
        if attempt.destination.run(_memory_in_use, lane=Lane.IO).result() >= memory:
            return


def _memory_in_use(worker: Any) -> int:
    return psutil.Process().memory_info().rss + tensor_bytes()


def _meet_a_stopped_source(
    case: Case, source: Process, destination: Process, way: str, *, aborted: bool = False
) -> None:
    attempt = Attempt.of_new_object(case, source, destination, way, case.payload(5_000))
    with source.paused() as stopped:
        if not stopped:
            raise case.cannot("the source is on another machine, where it cannot be stopped")
        attempt.begin_receive()
        if way == BOTH:
            attempt.begin_send_blindly()
        ended = attempt.main_call.wait(A_WHILE)
        if aborted and not ended and attempt.end():
            case.witness("A1", "A9", "A10")
    if not aborted or ended:
        attempt.expect_exact_or_error("R3")
    if attempt.send is not None:
        case.error(attempt.send, "R3")


def _works(case: Case, source: Process, destination: Process, clause: str) -> None:
    """A new object goes from one to the other."""
    payload = case.payload(3_000, 2, seed=7)
    for way in complete_ways(case):
        following = Attempt.of_new_object(case, source, destination, way, payload)
        following.begin()
        following.complete(clause)
        following.free()


def _left_by_a_killed_pair(case: Case) -> set[str]:
    case.renew()
    source, destination = case.actors(2)
    before = _of_each(_listen, source, destination)
    watch = Watch(memory=False)
    ref = source.produce(case.payload(100_000, 3))
    case.ok(destination.consume(ref), "L1")
    # Others put things there too.
    own = _of_each(_own_files, source, destination)
    made = {thing for thing in _files(watch) if is_among(thing.text, own)}
    made |= _of_each(_made_below, source, destination) - before
    helpers = _of_each(_helpers, source, destination)
    source.kill()
    destination.kill()
    case.leave_dirty()
    left = _still_running(helpers)  # first, because some helpers are there to clean up
    if any(map(_is_there, made)):
        _have_others_clear_up(case)
    return left | {thing.text for thing in made if _is_there(thing)}


def _have_others_clear_up(case: Case) -> None:
    """New processes use the transport, which may know there what nobody needs any more."""
    case.renew()
    source, destination = case.actors(2)
    case.ok(destination.consume(source.produce(case.payload())), "L1")


def _of_each(look: Callable[[Any], Set[_Found]], *processes: Process) -> Set[_Found]:
    """All that is found in one process or another."""
    return frozenset().union(*(process.run(look).result() for process in processes))


def _is_there(thing: Thing) -> bool:
    try:
        return os.lstat(thing.text).st_ino == thing.number
    except OSError:
        return False


def _files(watch: Watch) -> set[Thing]:
    """What has been put into shared memory or among the temporary files."""
    appeared = {thing for kind in (SHARED_MEMORY_FILES, TEMPORARY_FILES) for thing in watch.appeared(kind)}
    return {thing for thing in appeared if not thing.text.startswith(DRIVERS_FILES)}


def _listen(worker: Any) -> set[Thing]:
    """What there is in folders so far: others of the same process may have listened before."""
    listen()
    return set(made_below())


def _made_below(worker: Any) -> set[Thing]:
    return set(made_below())


def _own_files(worker: Any) -> frozenset[str]:
    return own_files()


def _helpers(worker: Any) -> set[tuple[int, float]]:
    """The process id and the beginning of every process that this one has started."""
    return {(child.pid, child.create_time()) for child in psutil.Process().children(recursive=True)}


def _still_running(helpers: Set[tuple[int, float]]) -> set[str]:
    """Which of the helpers stay when nobody is left to be helped. They are ended then: nobody else would."""
    running = []
    for pid, began in helpers:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            running += [process] if process.create_time() == began else []
    left = set()
    for process in psutil.wait_procs(running, TO_NOTICE)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:  # that one has ended
                left.add(f"process {process.pid} ({process.name()})")
                process.kill()
    return left


def _exposure(worker: Any) -> set[Exposed]:
    return exposure()


def _is_readable(thing: Exposed) -> bool:
    """Whether others may read it as it lies there; a listening socket may ask for a secret."""
    return thing.kind in ("file", "shared memory") and thing.reach != USER
