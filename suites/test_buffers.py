"""BUFFERS: receiving into memory that the receiver brings. Ray offers it in a get, so for one-sided transports only.

A transport may refuse target buffers by a ValueError, as long as it has written nothing. Then nothing else is asked of
it here, and the report says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.refusals import unless_buffers_are_refused
from rdt_conformance.engines.base import Pending
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.payloads import Payload, PayloadKind
from rdt_conformance.payloads.watching import Guard


@check("B2")
def test_nothing_outside_the_buffers_is_written(case: Case) -> None:
    """Sizes that are no multiple of a word, a line or a page, where writing a little more is easy and harmless."""
    payload = case.payload(case.draw(st.integers(1, 20_000), "bytes"), case.draw(st.integers(1, 4), "tensors"))
    source, destination = case.actors(2)
    guarded = destination.make(case.kind.guarded_buffers, payload, case.bench.device)
    _fetched(case, destination, _shared(case, source, payload), guarded.part(0), "B2")
    _expect_no_damage(case, guarded, "B2")


@check("B1")
def test_target_buffers_are_filled_and_returned(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    parts = case.draw(st.booleans(), "buffers are parts of a larger memory")
    source, destination = case.actors(2)
    if parts:
        given = destination.make(case.kind.guarded_buffers, payload, case.bench.device).part(0)
    else:
        given = destination.make(case.kind.buffers, payload, case.bench.device)
    _expect_filled(case, _shared(case, source, payload), given, payload.inverse(), payload)


@check("B1")
def test_a_get_fills_the_buffers_that_were_set_for_it(case: Case) -> None:
    payloads = case.draw(st.lists(case.payloads(max_bytes=5000), min_size=1, max_size=3), "payload of each object")
    source, destination = case.actors(2)
    refs = [source.produce(payload, case.bench.device) for payload in payloads]
    given = destination.make(_buffers_of_each, case.kind, payloads, case.bench.device)
    received = unless_buffers_are_refused(case, destination.get(*refs, buffers=given), "B1")
    if received is not None:
        for number, payload in enumerate(payloads):
            _expect_the_buffers(case, received.part(number), given.part(number), payload, "B1")


@check("B1")
def test_a_get_onto_the_device_where_the_tensors_are(case: Case) -> None:
    """Ray then brings fresh buffers on that device."""
    payload = case.draw(case.payloads(max_bytes=5000), "payload")
    (source,) = case.actors(1)
    getting = case.driver.get_onto(source.produce(payload, case.bench.device), case.bench.device)
    received = unless_buffers_are_refused(case, getting, "B1")
    if received is not None:
        case.arrived(received, payload, clause="B1")


@check("B3")
def test_buffers_are_filled_in_order(case: Case) -> None:
    """Tensors of one shape and dtype, and their buffers lie in memory the other way round."""
    count = case.draw(st.integers(2, 6), "tensors")
    payload = case.payload(count * case.draw(st.integers(1, 500), "bytes of each"), count)
    source, destination = case.actors(2)
    given = destination.make(case.kind.guarded_buffers, payload, case.bench.device).part(0).derive(_reversed)
    given.apply(case.kind.overwrite, payload.inverse())
    _expect_filled(case, _shared(case, source, payload), given, payload.inverse(), payload, "B3")


@check("B4")
def test_the_same_buffers_are_filled_again_and_again(case: Case) -> None:
    nbytes, count = case.draw(st.integers(1, 20_000), "bytes"), case.draw(st.integers(1, 3), "tensors")
    *sources, destination = case.actors(3)
    held = case.payload(nbytes, count).inverse()
    given = destination.make(case.kind.buffers, held.inverse(), case.bench.device)
    for number in range(case.draw(st.integers(2, 6), "times")):
        payload = case.payload(nbytes, count, seed=number)
        shared = _shared(case, case.draw(st.sampled_from(sources), "source"), payload)
        if not _expect_filled(case, shared, given, held, payload, "B4", refusable=number == 0):
            return
        if case.draw(st.booleans(), "freed before the next"):
            case.error(shared.source.collect(shared.obj_id, shared.metadata, shared.tensors))
            shared.tensors.drop()
        held = payload


@check("B5")
def test_buffers_on_another_type_of_device(case: Case) -> None:
    payload = case.draw(case.payloads(max_bytes=5000), "payload")
    here = _other_device(case)
    source, destination = case.actors(2)
    ref = source.produce(payload, case.bench.device)
    given = destination.make(_buffers_of_each, case.kind, [payload], here)
    getting = destination.get(ref, buffers=given)
    error = case.error(getting, "B5")
    if error is None:
        _expect_the_buffers(case, case.ok(getting).part(0), given.part(0), payload, "B5")
    else:
        case.require(
            bool(str(error)), "B5", f"buffers on {here} were refused by a {type(error).__name__} without words"
        )


@check("B5")
def test_a_get_onto_another_type_of_device(case: Case) -> None:
    """Ray then brings fresh buffers on that device."""
    payload = case.draw(case.payloads(max_bytes=5000), "payload")
    here = _other_device(case)
    (source,) = case.actors(1)
    getting = case.driver.get_onto(source.produce(payload, case.bench.device), here)
    error = case.error(getting, "B5")
    if error is not None:
        case.require(bool(str(error)), "B5", f"a get onto {here} was refused by a {type(error).__name__} without words")
        return
    received = case.ok(getting).part(0)
    case.arrived(received, payload, clause="B5")
    on = received.apply(_device_types)
    case.require(on == [here], "B5", f"tensors that were to be got onto {here} are on {' and '.join(on)}")


@check("B6")
def test_buffers_that_do_not_fit_are_refused(case: Case) -> None:
    sent, expected = _misfits(case)
    source, destination = case.actors(2)
    shared = _shared(case, source, sent)
    guarded = destination.make(case.kind.guarded_buffers, expected, case.bench.device)
    given = guarded.part(0)
    receiving = _fetched(case, destination, shared, given, "B6")
    accepted = case.error(receiving, "B6") is None
    _expect_no_damage(case, guarded, "B6")
    case.require(not accepted, "B6", f"buffers for {expected!r} were accepted for {sent!r}")
    written = given.differences(expected.inverse())
    case.require(not written, "B6", lambda: f"the buffers were refused after they had been written to: {written[0]}")


def _other_device(case: Case) -> str:
    return "cpu" if case.bench.device == "cuda" else "cuda"


def _device_types(tensors: Sequence[Any]) -> list[str]:
    return sorted({tensor.device.type for tensor in tensors})


@dataclass(frozen=True)
class Shared:
    """An object that a source has described."""

    source: Process
    tensors: Held
    obj_id: str
    metadata: bytes


def _shared(case: Case, source: Process, payload: Payload) -> Shared:
    tensors = source.build(payload, case.bench.device)
    return Shared(source, tensors, *case.described(source, tensors))


def _fetched(case: Case, destination: Process, shared: Shared, given: Held, clause: str) -> Pending[Held]:
    """Fetch an object into target buffers, as Ray's get does; the call that failed, else the one that came last."""
    comm = case.comm_for_get(destination)
    fetching = destination.fetch(shared.obj_id, shared.metadata, comm, given)
    if case.error(fetching, clause) is not None:
        return fetching
    request = case.ok(fetching)
    waiting = destination.wait(shared.obj_id, request)
    case.error(waiting, clause)
    request.drop()
    return waiting


def _expect_filled(
    case: Case,
    shared: Shared,
    given: Held,
    held: Payload,
    payload: Payload,
    clause: str = "B1",
    *,
    refusable: bool = True,
) -> bool:
    """Receive an object into buffers; False if the transport refuses them.

    Args:
        given: the buffers.
        held: what they hold before.
        payload: what they hold afterwards.
        clause: broken if they do not.
        refusable: whether the transport may still refuse them.
    """
    receiving = _fetched(case, given.process, shared, given, clause)
    received = unless_buffers_are_refused(case, receiving, clause) if refusable else case.ok(receiving, clause)
    if received is None:
        written = given.differences(held)
        case.require(
            not written, "B1", lambda: f"the buffers were refused after they had been written to: {written[0]}"
        )
        return False
    _expect_the_buffers(case, received, given, payload, clause)
    return True


def _expect_the_buffers(case: Case, received: Held, given: Held, payload: Payload, clause: str) -> None:
    """What was received are the buffers, and they are filled."""
    same = received.apply(_identities) == given.apply(_identities)
    case.require(
        same,
        clause,
        lambda: (
            "what was returned are not the target buffers, which were "
            + ("not filled" if given.differences(payload) else "filled")
        ),
    )
    case.arrived(given, payload, clause=clause)
    case.fact("target buffers", ["filled"])


def _expect_no_damage(case: Case, guarded: Held, clause: str) -> None:
    damage = guarded.apply(_damage)
    case.require(not damage, clause, lambda: damage[0])


def _misfits(case: Case) -> tuple[Payload, Payload]:
    """A payload, and another one whose buffers do not fit it; no larger than what guards the buffers."""
    others = {
        "a buffer is missing": case.payload(256, 1),
        "there is one buffer more": case.payload(768, 3),
        "buffers are smaller": case.payload(510, 2),
        "buffers are larger": case.payload(514, 2),
    }
    how = case.draw(st.sampled_from([*others, "buffers of the same size have another dtype or shape"]), "mistake")
    if how in others:
        return case.payload(512, 2), others[how]
    sent = case.draw(case.payloads(max_tensors=1, max_bytes=1024), "payload")
    others_of_this_size = [
        payload
        for payload in case.kind.every_contiguous(case.bench.device)
        if 0 < payload.nbytes == sent.nbytes and repr(payload) != repr(sent)
    ]
    case.unless(not others_of_this_size)
    return sent, case.draw(st.sampled_from(others_of_this_size), "buffers for")


def _buffers_of_each(kind: PayloadKind, payloads: Sequence[Payload], device: str) -> list[list[Any]]:
    return [kind.buffers(payload, device) for payload in payloads]


def _reversed(buffers: list[Any]) -> list[Any]:
    return buffers[::-1]


def _identities(tensors: Any) -> list[int]:
    return [id(tensor) for tensor in tensors] if isinstance(tensors, Sequence) else []


def _damage(guarded: tuple[list[Any], Guard]) -> list[str]:
    return guarded[1].damage()
