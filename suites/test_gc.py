"""GC: what is freed comes back, all of it, and nothing else goes with it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.idleness import LOOK_SECONDS, LOOKS, CannotTell, restless
from rdt_conformance.checks.leaks import expect_gone, expect_no_growth
from rdt_conformance.checks.moves import transfer
from rdt_conformance.checks.refusals import unless_buffers_are_refused
from rdt_conformance.checks.verdicts import broken
from rdt_conformance.engines.base import Lane, Pending
from rdt_conformance.engines.rdt import Ref
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.history import describe_error
from rdt_conformance.payloads import Payload

NBYTES = 64 << 10
"""Size of the objects whose leaks are looked for: large enough to be seen in the memory of the process."""
NBYTES_BETWEEN_PROCESSES = 2 << 20
"""The same where Ray itself, and the allocators of several processes, take up some megabytes in the first cycles."""
PROMPT = 1.0
"""Seconds in which a transport frees a small object at least once in three times, on any machine."""
LARGE = 16 << 20
"""Bytes that take long enough to fetch for something else to happen meanwhile."""


@check("G1")
def test_freed_objects_leave_nothing(case: Case) -> None:
    """One cycle makes an object in every role that there is, and frees them all."""
    nbytes = NBYTES if case.bench.engine == "local" else NBYTES_BETWEEN_PROCESSES
    payloads = itertools.cycle([case.payload(nbytes, count) for count in (1, 3, 8)])
    expect_no_growth(
        case,
        {name: lambda role=role: role(case, next(payloads)) for name, role in _roles(case).items()},
        "G1",
        payload_bytes=nbytes,
    )


@check("G2")
def test_freeing_works_however_often_the_object_was_received(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source = case.draw(st.sampled_from(_sources(case)), "source")
    ways = case.draw(st.lists(_ways(case), max_size=3), "received as")
    destinations = case.actors(3, first_at_one_end=True)[1:]
    shared = _share(case, source, payload)
    for way, destination in zip(ways, itertools.cycle(destinations), strict=False):
        _receive(case, shared, destination, way)
    _free(case, shared)


@check("G2")
def test_freeing_an_object_without_tensors_works(case: Case) -> None:
    for source in _sources(case):
        _free(case, _share(case, source, case.payload(0, count=0), clause="M4"))


@check("G3", "G3b")
def test_freeing_again_frees_nothing_else(case: Case) -> None:
    family = case.draw(case.families(), "objects")
    twice = case.draw(st.integers(0, len(family.payloads) - 1), "freed twice")
    source, destination = case.actors(2)
    alive = _share_family(case, source, family.payloads, source.make(family.build, case.bench.device))
    gone = alive.pop(twice)
    case.ok(_collect(gone), "G2")
    # A newcomer of the same size is likely to be given what the freed object had.
    alive.append(_share(case, source, gone.payload.inverse()))
    error = case.error(_collect(gone))
    if error is not None:
        case.advise(False, "G3b", f"garbage_collect, called again for a freed object, raised {describe_error(error)}")
    for survivor in alive:
        case.arrived(_receive(case, survivor, destination), survivor.payload)
        _free(case, survivor)


@check("G4")
def test_freeing_one_object_keeps_those_that_share_its_memory(case: Case) -> None:
    family = case.draw(case.families(), "objects")
    order = case.draw(st.permutations(range(len(family.payloads))), "freed in order")
    source, destination = case.actors(2)
    shared = _share_family(case, source, family.payloads, source.make(family.build, case.bench.device))
    for freed, number in enumerate(order, 1):
        _free(case, shared[number])
        for other in order[freed:]:
            case.arrived(_receive(case, shared[other], destination), shared[other].payload)


@check("G5")
def test_what_was_received_outlives_the_object(case: Case) -> None:
    """The source frees the object and its tensors, and shares new ones that may get the same memory."""
    payload = case.draw(case.payloads(), "payload")
    way = case.draw(_ways(case), "received as")
    newcomers = case.draw(st.integers(1, 3), "new objects afterwards")
    source, destination, other = case.actors(3, first_at_one_end=True)
    shared = _share(case, source, payload)
    received = [_receive(case, shared, receiver, way) for receiver in (destination, other)]
    for held in received:
        case.arrived(held, payload, clause="L1")
    _free(case, shared)
    for newcomer in [_share(case, source, payload.inverse()) for _ in range(newcomers)]:
        _receive(case, newcomer, destination, way)
        _free(case, newcomer)
    for held in received:
        case.arrived(held, payload)


@check("G6")
def test_no_reference_to_freed_tensors_remains(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source = case.draw(st.sampled_from(_sources(case)), "source")
    ways = case.draw(st.lists(_ways(case), max_size=2), "received as")
    destination = case.actors(2)[1]
    tracked = source.make(case.kind.tracked, payload, case.bench.device)
    tensors, lifetimes = tracked.part(0), tracked.part(1)
    tracked.drop()
    shared = _share(case, source, payload, tensors)
    for way in ways:
        _receive(case, shared, destination, way).drop()
    _free(case, shared)
    expect_gone(case, lifetimes, "G6", "the object was freed")


@check("G7")
def test_freeing_between_fetch_and_wait(case: Case) -> None:
    payload = case.payload(case.draw(st.sampled_from(_sizes(case)), "bytes"), seed=1)
    source, destination = case.actors(2)
    shared = _share(case, source, payload)
    fetching = destination.fetch(shared.obj_id, shared.metadata, case.comm_for_get(destination))
    case.ok(fetching, "L1")
    newcomer = _replace(case, shared)
    _expect_error_or_exact(case, shared, destination, fetching)
    _free(case, newcomer)


@check(situational=("G7",))
def test_freeing_in_the_middle_of_a_fetch(case: Case) -> None:
    payload = case.payload(case.draw(st.sampled_from(_sizes(case)), "bytes"), 16, seed=1)
    source, destination = case.actors(2)
    shared = _share(case, source, payload)
    fetching = destination.fetch(shared.obj_id, shared.metadata, case.comm_for_get(destination))
    case.world.history.wait_for("fetch", destination.name, case.patience.call)
    newcomer = _replace(case, shared)
    if not fetching.done():
        case.witness("G7")
    _expect_error_or_exact(case, shared, destination, fetching)
    _free(case, newcomer)


@check("G8", situational=("G8",))
def test_memory_that_is_allocated_again_in_another_size(case: Case) -> None:
    sizes = case.draw(st.lists(st.integers(1, 20_000), min_size=3, max_size=5, unique=True), "bytes")
    way = case.draw(_ways(case), "received as")
    source, destination = case.actors(2)
    room = source.make(case.kind.room, case.payload(max(sizes)), case.bench.device)
    addresses = []
    for seed, size in enumerate(sizes):
        payload = case.payload(size, seed=seed)
        tensors = room.derive(case.kind.build_in, payload)
        addresses.append(tensors.apply(_address, case.kind.fingerprint))
        shared = _share(case, source, payload, tensors, "G8")
        received = _receive(case, shared, destination, way)
        case.arrived(received, payload)
        received.drop()
        _free(case, shared)
        if case.bench.device != "cpu":  # a receiver that was shown the source's own memory says when it lets go of it
            case.world.come_to_rest(case.patience.call)
    if len({*addresses}) < len(addresses):
        case.witness("G8")


@check("G9")
def test_a_fetch_that_comes_too_late_gives_no_other_data(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    received_before = case.draw(st.booleans(), "received before")
    count = case.draw(st.integers(0, 2), "new objects")
    source, destination = case.actors(2)
    shared = _share(case, source, payload)
    if received_before:
        _receive(case, shared, destination)
    _free(case, shared)
    newcomers = [_share(case, source, payload.inverse()) for _ in range(count)]
    comm = case.comm_for_get(destination)
    _expect_error_or_exact(case, shared, destination, destination.fetch(shared.obj_id, shared.metadata, comm))
    for newcomer in newcomers:
        _free(case, newcomer)


@check("G10")
def test_freeing_is_prompt(case: Case) -> None:
    source, destination = case.actors(2)
    for received in (False, True):
        seconds = [_seconds_to_free(case, source, destination, received=received) for _ in range(3)]
        what = "received" if received else "that nobody had received"
        case.require(
            min(seconds) < PROMPT,
            "G10",
            f"garbage_collect of 256 bytes {what} took {min(seconds):.1f} s or more, three times in a row",
        )


@check("G11", situational=("G11",))
def test_rests_while_nothing_is_under_way(case: Case) -> None:
    """After an object has been sent and freed. A thread that is busy only for a moment may still clean up."""
    payload = case.payload()
    source, destination = case.actors(2)
    ref = source.produce(payload)
    case.ok(destination.consume(ref), "L1").drop()
    ref.drop()
    if not case.world.come_to_rest(case.patience.call):
        return
    try:
        found = restless([source, destination])
    except CannotTell:
        return
    case.witness("G11")
    if found is not None:
        raise broken(
            "G11",
            f"{found.process} used at least {found.share:.0%} of a processor in {LOOKS} looks of {LOOK_SECONDS:g} s in "
            f"which nothing was under way; most of it the thread {found.thread}",
        )


@dataclass(frozen=True)
class _Shared:
    """An object that its source has described and not freed yet."""

    payload: Payload
    source: Process
    tensors: Held
    obj_id: str
    metadata: bytes


def _built(case: Case, process: Process, payload: Payload) -> Held:
    return process.build(payload, case.bench.device)


def _share(case: Case, source: Process, payload: Payload, tensors: Held | None = None, clause: str = "L1") -> _Shared:
    """Make an object of tensors, or of new ones, by a single call."""
    tensors = tensors or _built(case, source, payload)
    obj_id = case.world.new_object_id()
    return _Shared(payload, source, tensors, obj_id, case.ok(source.extract(obj_id, tensors), clause))


def _share_family(case: Case, source: Process, payloads: Sequence[Payload], members: Held) -> list[_Shared]:
    shared = [_share(case, source, each, members.part(number), "L5") for number, each in enumerate(payloads)]
    members.drop()
    return shared


def _sources(case: Case) -> list[Process]:
    """Who may share an object: an actor, and the driver by a put."""
    actors = case.actors(1)
    return [*actors, case.driver] if case.driver_takes_part else actors


def _ways(case: Case) -> st.SearchStrategy[str]:
    return st.sampled_from(["argument of a task", "get"] if case.target.one_sided.value else ["argument of a task"])


def _receive(case: Case, shared: _Shared, destination: Process, way: str = "argument of a task") -> Held:
    """One transfer by single calls; what arrived."""
    if way != "get":
        return transfer(case, shared.source, destination, shared.obj_id, shared.tensors, shared.metadata)
    comm = case.comm_for_get(destination)
    request = case.ok(destination.fetch(shared.obj_id, shared.metadata, comm))
    received = case.ok(destination.wait(shared.obj_id, request))
    request.drop()
    return received


def _collect(shared: _Shared) -> Pending[None]:
    """Call garbage_collect where Ray does: the driver has no lane of its own for it."""
    lane = Lane.SYSTEM if shared.source.name != "driver" else Lane.IO
    return shared.source.collect(shared.obj_id, shared.metadata, shared.tensors, lane=lane)


def _free(case: Case, shared: _Shared) -> None:
    """End an object's life: the transport first, then its tensors."""
    case.ok(_collect(shared), "G2")
    shared.tensors.drop()


def _seconds_to_free(case: Case, source: Process, destination: Process, *, received: bool) -> float:
    shared = _share(case, source, case.payload())
    if received:
        _receive(case, shared, destination).drop()
    began = time.monotonic()
    _free(case, shared)
    return time.monotonic() - began


def _sizes(case: Case) -> list[int]:
    return [min(LARGE, case.budget.big_bytes), 100]


def _replace(case: Case, shared: _Shared) -> _Shared:
    """Free an object and share a new one of its size, which may get its memory and what the transport had for it."""
    _free(case, shared)
    return _share(case, shared.source, shared.payload.inverse())


def _expect_error_or_exact(case: Case, shared: _Shared, destination: Process, fetching: Pending[Held]) -> None:
    """See a fetch of a freed object to its end."""
    if case.error(fetching) is None:
        waiting = destination.wait(shared.obj_id, case.ok(fetching))
        if case.error(waiting) is None:
            case.arrived(case.ok(waiting), shared.payload)


def _address(tensors: list[Any], fingerprint: Callable[[list[Any]], Any]) -> object:
    return fingerprint(tensors).facts[0]["data pointer"]


def _roles(case: Case) -> dict[str, Callable[[Case, Payload], object]]:
    """What can become of an object."""
    roles = {
        "objects that nobody received": _produce,
        "objects that one actor received": _consume,
        "objects that several actors received": _consume_in_many,
    }
    if not case.target.one_sided.value:
        return roles
    roles["objects that were put and got"] = _put_and_get
    if case.driver_takes_part:
        roles["objects that the driver put"] = _driver_puts
    if case.target.takes_buffers and case.error(_get_into_buffers(case, case.payload()), "B1") is None:  # may refuse
        roles["objects got into target buffers"] = _get_into_buffers_unless_refused
    return roles


def _produce(case: Case, payload: Payload) -> Ref:
    return case.actors(1)[0].produce(payload, case.bench.device)


def _consume(case: Case, payload: Payload) -> None:
    case.ok(case.actors(2)[1].consume(_produce(case, payload)), "L1")


def _consume_in_many(case: Case, payload: Payload) -> None:
    ref = _produce(case, payload)
    destinations = case.actors(4, first_at_one_end=True)[1:]
    for arriving in [destination.consume(ref) for destination in destinations]:
        case.ok(arriving, "L2")


def _put_and_get(case: Case, payload: Payload) -> None:
    source, destination = case.actors(2)
    ref = case.ok(source.put(_built(case, source, payload)), "L12")
    if case.driver_takes_part:
        case.ok(case.driver.get(ref), "L12")
    case.ok(destination.get(ref), "L2")


def _driver_puts(case: Case, payload: Payload) -> None:
    ref = case.ok(case.driver.put(_built(case, case.driver, payload)), "L12")
    case.ok(case.actors(1)[0].get(ref), "L12")


def _get_into_buffers(case: Case, payload: Payload) -> Pending[Held]:
    source, destination = case.actors(2)
    ref = case.ok(source.put(_built(case, source, payload)), "L12")
    return destination.get(ref, buffers=destination.make(_buffers, case.kind.buffers, payload, case.bench.device))


def _get_into_buffers_unless_refused(case: Case, payload: Payload) -> None:
    """A transport that takes some buffers may refuse others."""
    unless_buffers_are_refused(case, _get_into_buffers(case, payload), "B1")


def _buffers(make: Callable[[Payload, str], list[Any]], payload: Payload, device: str) -> list[list[Any]]:
    """Target buffers for one object."""
    return [make(payload, device)]
