"""METADATA: what the source says of an object, and that saying so changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.leaks import Repeat, adds, expect_gone, expect_no_growth, growing_with
from rdt_conformance.checks.moves import begin_send, transfer
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.history import describe_error
from rdt_conformance.observe import growth
from rdt_conformance.payloads.base import Payload, Recipe, Refusable
from rdt_conformance.payloads.watching import Fingerprint, Lifetimes
from rdt_conformance.words import listed

_SOME = 6
"""Every so many payloads are tried where not all are."""
A_WHILE = 10.0
"""Seconds in which some cycles can be run and counted wherever the processes are."""


@check("M1", "M2")
def test_metadata_describe_every_tensor(case: Case) -> None:
    """Each kind of tensor alone, then all that the transport takes in one object, which it may take or not."""
    (source,) = case.actors(1)
    accepted = [payload for payload in _payloads_of_every_kind(case) if _is_described(case, source, payload)]
    case.require(bool(accepted), "M1", "extract_tensor_transport_metadata refused every tensor that it was given")
    _is_described(case, source, *accepted)


@check("M3")
def test_tensors_on_different_devices_are_refused(case: Case) -> None:
    """An empty tensor will do, as there is nothing in it that could be copied, or crash whoever tries."""
    elsewhere = case.kind.on_another_device(case.bench.device)
    if not elsewhere:
        return  # arrays of this kind lie on one type of device only, so no object can break the clause
    payload = case.draw(case.payloads(max_tensors=2), "payload")
    position = case.draw(st.integers(0, payload.count), "position of the tensor on another device")
    (source,) = case.actors(1)
    tensors = source.make(_inserted, payload, case.bench.device, position, case.kind.on_another_device)
    error = case.error(source.extract(case.world.new_object_id(), tensors))
    what = f"an object had {payload!r} on {case.bench.device}, and at position {position} one on {elsewhere[0].device}"
    case.require(error is not None, "M3", f"{what}, and extract_tensor_transport_metadata accepted it")
    case.require(bool(str(error).strip()), "M3", f"{what}, and what refused it says nothing: {error!r}")


@check("M4")
def test_an_object_without_tensors_lives_like_any_other(case: Case) -> None:
    """One that is put never reaches the transport."""
    nothing = case.draw(case.payloads(min_tensors=0, max_tensors=0), "payload")
    something = case.payload(100)
    source, destination = case.actors(2)
    ref, other = source.produce(nothing), source.produce(something)
    case.arrived(case.ok(destination.consume(ref)), nothing)
    case.arrived(case.ok(destination.consume(ref, other)), nothing, something)
    if case.target.one_sided.value:
        case.arrived(case.ok(case.driver.get(ref)), nothing)
        case.arrived(case.ok(destination.get(ref, other)), nothing, something)


@check("M4", "M4b")
def test_an_object_without_tensors_in_single_calls(case: Case) -> None:
    """The free has to be seen by itself: Ray logs what it raises, and goes on."""
    nothing = case.draw(case.payloads(min_tensors=0, max_tensors=0), "payload")
    source, destination = case.actors(2)
    for received in (False, True):
        tensors = source.build(nothing, case.bench.device)
        obj_id, metadata = case.described(source, tensors)
        tensor_meta = case.world.loads(metadata).tensor_meta
        case.require(
            tensor_meta is not None and len(tensor_meta) == 0,
            "M4",
            f"tensor_meta of an object without tensors is {tensor_meta!r}",
        )
        if received:
            _advise_to_receive_nothing(case, source, destination, obj_id, tensors, metadata)
        case.ok(source.collect(obj_id, metadata, tensors))


def _advise_to_receive_nothing(
    case: Case, source: Process, destination: Process, obj_id: str, tensors: Held, metadata: bytes
) -> None:
    """Ray has the transport do it, and does not look at what comes of it."""
    comm = case.ok(case.driver.communicator(source, destination))
    sending = begin_send(case, source, obj_id, tensors, metadata, comm)
    receiving = destination.recv(obj_id, metadata, comm)
    errors = [case.error(call) for call in (sending, receiving) if call is not None]
    raised = next((error for error in errors if error is not None), None)
    said = "nothing" if raised is None else describe_error(raised)
    case.advise(raised is None, "M4b", f"receiving an object without tensors raised {said}")
    if raised is None:
        case.arrived(case.ok(receiving), case.payload(0, count=0))


@check("M5")
def test_extract_leaves_the_tensors_as_they_were(case: Case) -> None:
    """Also those that it refuses."""
    (source,) = case.actors(1)
    for payload in _payloads_of_every_kind(case):
        _expect_unchanged(case, source, payload)


@check("M6")
def test_extract_again_gives_the_same(case: Case) -> None:
    """A task whose reply was lost runs again. Nobody will ever use what the lost reply said."""
    payload = case.draw(case.payloads(), "payload")
    source, destination = case.actors(2)
    tensors = source.build(payload, case.bench.device)
    obj_id, metadata = case.described(source, tensors)
    first = _description(case, metadata)
    for _ in range(case.draw(st.integers(1, 3), "times described again")):
        _, metadata = case.described(source, tensors, obj_id)
        again = _description(case, metadata)
        case.require(
            again == first,
            "M6",
            f"an object was first described as {_shortened(first)}, and then as {_shortened(again)}",
        )
    case.arrived(transfer(case, source, destination, obj_id, tensors, metadata), payload)
    case.ok(source.collect(obj_id, metadata, tensors))


@check("M6")
def test_one_free_undoes_two_extracts(case: Case) -> None:
    """The producer keeps its tensors, so that no object has the address of an earlier one."""
    (source,) = case.actors(1)
    payload = case.payload(64, count=2)

    def cycles(count: int, descriptions: int = 2) -> None:
        for _ in range(count):
            case.world.history.clear()
            tensors = source.build(payload, case.bench.device)
            obj_id, metadata = case.described(source, tensors)
            for _ in range(descriptions - 1):
                _, metadata = case.described(source, tensors, obj_id)
            case.ok(source.collect(obj_id, metadata, tensors))

    what = "each object was described twice and freed once"
    _expect_none_grows(case, cycles, "M6", what, control=lambda count: cycles(count, descriptions=1))


@check("M7")
def test_nothing_refers_to_the_tensors_of_a_refused_object(case: Case) -> None:
    refused = case.draw(st.sampled_from(_to_be_refused(case)), "what is refused")
    payload = case.draw(case.payloads(), "tensors before it")
    (source,) = case.actors(1)
    tracked = source.make(_tracked_with, case.kind.tracked, payload, refused, case.bench.device)
    tensors, lifetimes = tracked.part(0), tracked.part(1)
    tracked.drop()
    case.unless(not _is_refused(case, source, tensors))
    expect_gone(case, lifetimes, "M7", "extract_tensor_transport_metadata refused the object")


@check("M7")
def test_refused_objects_leave_nothing(case: Case) -> None:
    (source,) = case.actors(1)
    payload = case.payload(64 << 10, count=3)

    def refuses(what: Buildable) -> bool:
        return _is_refused(case, source, source.make(_build_all, (payload, what), case.bench.device))

    refused = next(filter(refuses, _to_be_refused(case)))
    case.fact("refused in the leak check", repr(refused))
    each = f"each time, tensors were described together with {refused!r}, which is refused"
    expect_no_growth(case, lambda: refuses(refused), "M7", payload_bytes=payload.nbytes, each=each)


@check("M7")
def test_nothing_stays_registered_of_refused_objects(case: Case) -> None:
    """The producer keeps its tensors, small ones and one that is not, so that no object has the address of another."""
    (source,) = case.actors(1)
    before = (case.payload(64, count=2), case.payload(64 << 10))

    def refuses(what: Buildable) -> bool:
        return _is_refused(case, source, source.make(_build_all, (*before, what), case.bench.device), keep=True)

    refused = [what for what in (case.payload(0), *_to_be_refused(case)) if refuses(what)]
    if not refused:
        raise case.cannot("nothing that was tried is refused")

    def cycles(count: int, *these: Buildable) -> None:
        for _ in range(count):
            case.world.history.clear()
            for what in these or refused:
                refuses(what)

    told = listed(sorted({repr(what) for what in refused}))
    _expect_none_grows(
        case,
        cycles,
        "M7",
        f"tensors were described together with what is refused, each of {told}",
        parts={repr(what): lambda count, what=what: cycles(count, what) for what in refused},
    )


def _expect_none_grows(
    case: Case,
    cycles: Callable[[int], None],
    clause: str,
    what: str,
    parts: Mapping[str, Repeat] | None = None,
    control: Repeat | None = None,
) -> None:
    """Run ever more cycles, after each of which the tensors stay. Their memory is not looked at.

    Args:
        case: where.
        cycles: runs so many.
        clause: what growth breaks.
        what: each of them does, for the message.
        parts: that a cycle consists of, by their names: which of them it is that makes something grow is told.
        control: what grows with this as well, such as a record of each tensor that lives, is not counted.
    """
    cycles(1)  # by now the transport has been built
    seconds = max(20 * case.budget.seconds, A_WHILE)
    grown = growth(
        cycles,
        case.world.watch(),
        cycles=case.budget.cycles,
        most_cycles=case.budget.most_cycles,
        deadline=time.monotonic() + seconds,
    )
    if not grown.judged:
        raise case.cannot(f"only {grown.cycles} cycles could be run in {seconds:g} s, too few to tell a leak")
    leaks = [leak for leak in grown.leaks if control is None or not adds(case, [leak], control)]
    if leaks:
        where = growing_with(case, leaks, parts or {})
        case.require(False, clause, f"{what}: {'; '.join(leak.sentence for leak in leaks)}{where}")


@check("M8")
def test_what_cannot_be_carried_is_refused_at_once(case: Case) -> None:
    source, destination = case.actors(2)
    odd = [payload for payload in case.kind.refusable_payloads(case.bench.device) if not _endangers_us(case, payload)]
    for payload in [*odd, *_payloads_of_every_kind(case)]:
        _expect_refused_or_carried(case, source, destination, payload)


def _payloads_of_every_kind(case: Case) -> list[Payload]:
    """One tensor of every dtype and shape, and of every kind of view; or some of them, see `Bench.every_kind`."""
    device = case.bench.device
    views = [payload for payload in case.kind.every_view(device) if payload.count == 1]
    every = [*case.kind.every_contiguous(device), *views]
    # A transport may carry nothing but what is as simple as can be.
    return every if case.bench.every_kind else [case.payload(), *every[case.bench.seed % _SOME :: _SOME]]


def _is_described(case: Case, source: Process, *payloads: Payload) -> bool:
    """Describe tensors in one object, compare, and free them; False if the transport refuses them, which it may."""
    tensors = source.make(_build_all, payloads, case.bench.device)
    what = repr(payloads[0]) if len(payloads) == 1 else f"{len(payloads)} tensors of different kinds"
    obj_id = case.world.new_object_id()
    extracting = source.extract(obj_id, tensors)
    if case.error(extracting) is not None:
        return False
    metadata = case.world.loads(case.ok(extracting))
    expected, found = _as_pairs(tensors.apply(case.kind.metas)), _as_pairs(metadata.tensor_meta)
    case.require(
        found == expected,
        "M1",
        f"tensor_meta of {what} is {_shortened(metadata.tensor_meta)} instead of {_shortened(expected)}",
    )
    device = metadata.tensor_device
    case.require(
        isinstance(device, str) and device == case.bench.device,
        "M2",
        f"tensor_device of {what} on {case.bench.device!r} is the {type(device).__name__} {device!r}",
    )
    case.ok(source.collect(obj_id, case.ok(extracting), tensors))
    tensors.drop()
    return True


def _expect_unchanged(case: Case, source: Process, payload: Payload) -> None:
    watched = source.make(_watched, payload, case.bench.device, case.kind.fingerprint)
    tensors = watched.part(0)
    obj_id = case.world.new_object_id()
    extracting = source.extract(obj_id, tensors)
    refused = case.error(extracting) is not None
    changes = watched.apply(_changes)
    case.require(not changes, "M5", lambda: f"extract_tensor_transport_metadata changed {payload!r}: {changes[0]}")
    if not refused:
        case.ok(source.collect(obj_id, case.ok(extracting), tensors))
    for held in (watched, tensors):
        held.drop()


def _expect_refused_or_carried(case: Case, source: Process, destination: Process, payload: Recipe) -> None:
    case.world.history.clear()  # that of a hundred others would only hide it
    case.going_through("sent", payload)
    tensors = source.build(payload, case.bench.device)
    obj_id = case.world.new_object_id()
    extracting = source.extract(obj_id, tensors)
    error = case.error(extracting)
    if error is not None:
        case.require(bool(str(error).strip()), "M8", f"{payload!r} was refused, and {error!r} does not say why")
        return
    metadata = case.ok(extracting)
    received = transfer(case, source, destination, obj_id, tensors, metadata)
    differences = received.differences(payload)
    case.require(not differences, "M8", lambda: f"{payload!r} was accepted, and arrived wrongly: {differences[0]}")
    case.ok(source.collect(obj_id, metadata, tensors))
    for held in (tensors, received):
        held.drop()


def _endangers_us(case: Case, payload: Refusable) -> bool:
    """Whether a transport that takes the payload for plain memory can crash this very process."""
    return payload.may_crash and case.bench.engine == "local"


class Buildable(Protocol):
    """What makes a list to be shared, of tensors or not."""

    def build(self, device: str = "cpu") -> list[Any]: ...


class _NoTensor:
    def build(self, device: str = "cpu") -> list[None]:
        return [None]

    def __repr__(self) -> str:
        return "no tensor at all"


def _to_be_refused(case: Case) -> list[Buildable]:
    """Tensors that a transport may refuse, and in the end something that none can take."""
    return [
        *(what for what in case.kind.refusable_payloads(case.bench.device) if not _endangers_us(case, what)),
        _NoTensor(),
    ]


def _is_refused(case: Case, source: Process, tensors: Held, *, keep: bool = False) -> bool:
    """Describe tensors in one object, and drop them unless they are to be kept. The error is not: it refers to them."""
    obj_id = case.world.new_object_id()
    extracting = source.extract(obj_id, tensors)
    refused = case.error(extracting) is not None
    if not refused:
        case.ok(source.collect(obj_id, case.ok(extracting), tensors), "G2")
    if not keep:
        tensors.drop()
    return refused


def _tracked_with(
    track: Callable[..., tuple[list[Any], Lifetimes]], payload: Payload, another: Buildable, device: str
) -> tuple[list[Any], Lifetimes]:
    tensors, lifetimes = track(payload, device)
    return [*tensors, *another.build(device)], lifetimes


def _as_pairs(tensor_meta: Any) -> list[tuple[Any, Any]] | None:
    """Shapes and dtypes as Ray reads them; None if they cannot be read like that."""
    try:
        return [(shape, dtype) for shape, dtype in tensor_meta]
    except (TypeError, ValueError):
        return None


def _description(case: Case, metadata: bytes) -> tuple[Any, Any]:
    described = case.world.loads(metadata)
    return _as_pairs(described.tensor_meta), described.tensor_device


def _build_all(payloads: tuple[Buildable, ...], device: str) -> list[Any]:
    return [tensor for payload in payloads for tensor in payload.build(device)]


def _inserted(payload: Payload, device: str, position: int, another: Callable[[str], list[Any]]) -> list[Any]:
    tensors = payload.build(device)
    return [*tensors[:position], *another(device), *tensors[position:]]


def _watched(payload: Payload, device: str, take: Callable[[Any], Fingerprint]) -> tuple[list[Any], Fingerprint]:
    tensors = payload.build(device)
    return tensors, take(tensors)


def _changes(watched: tuple[list[Any], Fingerprint]) -> list[str]:
    """What has become of the tensors. Where they lie may change, as when a storage moves to shared memory."""
    tensors, before = watched
    return [change for change in before.changes(tensors) if ": data pointer was " not in change]


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"
