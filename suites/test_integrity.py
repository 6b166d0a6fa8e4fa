"""INTEGRITY: what arrives is what was sent, whatever it is, and nothing else changes."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import psutil
from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.moves import begin_send, transfer
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.payloads import Payload, PayloadKind
from rdt_conformance.payloads.watching import Fingerprint

EDGES = 8 << 20
"""Up to this size every power of two is tried with one byte less, as it is, and with one byte more."""
LARGE = 32 << 20
"""Bytes of the memory behind a small view."""
SMALL = 4096
"""Bytes of the view."""
PER_TENSOR = 0.01
"""Seconds that each tensor of an object may take in addition."""
RECYCLED = 2 << 20
"""Bytes of an object for which memory is worth to be kept and used again."""
DELIVERY = "L1"
"""What is broken where nothing arrives, though something else was to be looked at."""


@check("D1")
def test_every_dtype_and_number_of_dimensions_arrives(case: Case) -> None:
    source, destination = case.actors(2)
    payloads = case.kind.every_contiguous(case.bench.device)
    refused = [payload for payload in payloads if not _arrives(case, source, destination, payload, "D1")]
    case.fact("refuses contiguous tensors", [_words(payload) for payload in refused])


@check("D1")
def test_every_size_arrives(case: Case) -> None:
    source, destination = case.actors(2)
    # The source, the transport and the receiver may all have copies at the same time.
    largest = min(case.budget.big_bytes, psutil.virtual_memory().available // 5)
    payloads = [case.payload(nbytes) for nbytes in _sizes(largest)]
    refused = [payload for payload in payloads if not _arrives(case, source, destination, payload, "D1")]
    case.fact("refuses sizes", [_words(payload) for payload in refused])


@check("D2", "D1")
def test_many_tensors_arrive_in_order(case: Case) -> None:
    count = case.budget.many_tensors
    source, destination = case.actors(2)
    if not _arrives(case, source, destination, case.payload(8 * count + 3, count), "D2"):
        case.fact("refuses objects", [f"{count:,} tensors in one"])


@check("D2")
def test_all_dtypes_and_shapes_in_one_object_keep_their_order(case: Case) -> None:
    """Dtypes and tensors without elements are mixed: transports group the former and skip the latter."""
    source, destination = case.actors(2)
    payloads = [payload for payload in case.kind.every_contiguous(case.bench.device) if payload.nbytes <= 1024]
    received = _all_in_one(case, source, destination, payloads)
    if received is None:
        payloads = [payload for payload in payloads if _arrives(case, source, destination, payload, "D1")]
        received = _all_in_one(case, source, destination, payloads)
    if received is None:
        case.fact("refuses objects", ["dtypes in one that it accepts each alone"])
        return
    arrived, sent = received.apply(_amount), _amount(payloads)
    case.require(arrived == sent, "D2", f"{arrived} arrived, {sent} were sent")
    if received.derive(_each_alone).differences(*payloads):  # what does not even arrive alone is for D1 to say
        payloads = [payload for payload in payloads if _arrives_exactly(case, source, destination, payload)]
        received = _all_in_one(case, source, destination, payloads)
        case.require(received is not None, "D2", f"{len(payloads)} tensors were refused, but not together with others")
        assert received is not None
        case.arrived(received.derive(_each_alone), *payloads)


@check("D2")
def test_count_and_order_hold(case: Case) -> None:
    payload = case.draw(case.payloads(min_tensors=2, max_tensors=8, max_bytes=64), "payload")
    source, destination = case.actors(2)
    case.require(_arrives(case, source, destination, payload, "D2"), "D2", "plain tensors were refused")


@check("D3")
def test_every_view_arrives_or_is_refused(case: Case) -> None:
    source, destination = case.actors(2)
    payloads = case.kind.every_view(case.bench.device)
    refused = [payload for payload in payloads if not _arrives(case, source, destination, payload, "D3")]
    alone = [payload for payload in refused if payload.count == 1]
    case.fact("refuses views", [_words(payload).rpartition("] ")[2] for payload in alone])


@check("D3", "D1")
def test_any_tensors_arrive_or_are_refused(case: Case) -> None:
    """Several views of any dtype in one object, which may share memory; first as they would be without being views."""
    payload = case.draw(case.kind.payloads(device=case.bench.device, min_tensors=1), "payload")
    source, destination = case.actors(2)
    _arrives(case, source, destination, payload.plain(), "D1")
    _arrives(case, source, destination, payload, "D3")


@check("D4")
def test_the_sources_tensors_stay_as_they_are(case: Case) -> None:
    payload = case.draw(case.kind.payloads(device=case.bench.device, min_tensors=1, max_bytes=5000), "payload")
    source, *destinations = case.actors(3, first_at_one_end=True)
    obj_id = case.world.new_object_id()
    tensors = source.build(payload, case.bench.device)
    metadata = _accepted(case, source, obj_id, tensors)
    if metadata is None:
        tensors = source.build(case.draw(case.payloads(max_bytes=5000), "instead of the refused one"))
        metadata = case.ok(source.extract(obj_id, tensors))
    before = tensors.apply(_seen, case.kind)
    for destination in destinations:
        transfer(case, source, destination, obj_id, tensors, metadata, clause="D3")
    case.error(source.collect(obj_id, metadata, tensors))
    changes = tensors.apply(_changes, before)
    case.require(not changes, "D4", lambda: f"two transfers have changed the source's tensors: {changes[0]}")


@check("D5", "D5r")
def test_copies_of_different_receivers_are_independent(case: Case) -> None:
    """The same actor receives twice, another one once; one of the three then writes into what it got."""
    payload = case.payload(case.draw(st.integers(1, 5000), "bytes"), case.draw(st.integers(1, 3), "tensors"))
    source, one, other = case.actors(3, first_at_one_end=True)
    tensors = source.build(payload, case.bench.device)
    ref = source.produce(tensors)
    arrived = [case.ok(receiver.consume(ref), DELIVERY).part(0) for receiver in (one, one, other)]
    case.unless(any(held.differences(payload) for held in arrived))
    writer = arrived.pop(case.draw(st.integers(0, 2), "writer"))
    if writer.apply(case.kind.traits, case.bench.device):
        case.fact("received tensors", "cannot all be written, see D8b")
        return
    writer.apply(case.kind.overwrite, payload.inverse())
    if tensors.differences(payload):
        case.fact("received tensors", "share memory with the source")
        return
    case.fact("received tensors", "are copies")
    for held in arrived:
        changed = f"{writer.process} wrote into a copy that it received, and a copy at {held.process} changed as well"
        _expect(case, held, payload, "D5", changed)


@check("D6")
def test_earlier_tensors_stay_as_they_are_when_later_ones_arrive(case: Case) -> None:
    """Also where the user has kept nothing but views of them."""
    large = case.draw(st.sampled_from([False, True]), "large")
    payload = case.payload(RECYCLED) if large else case.draw(case.payloads(max_bytes=20_000), "payload")
    later = case.draw(st.lists(st.sampled_from(("the same again", "another", "a larger one")), max_size=5), "later")
    as_views = case.kind.has_parts and case.draw(st.booleans(), "kept as views")
    source, destination = case.actors(2)
    sent = {
        "the same again": payload,
        "another": payload.inverse(),
        "a larger one": case.payload(payload.nbytes + 1000),
    }
    refs = {what: source.produce(each, case.bench.device) for what, each in sent.items()}
    arrived: list[tuple[Held, Payload]] = []
    for what in ["the same again", *later, "another"]:
        received = case.ok(destination.consume(refs[what]), DELIVERY)
        case.unless(bool(received.differences(sent[what])))
        if as_views:
            tensors = received.part(0)
            views = tensors.derive(_views)
            tensors.drop()
            received.drop()
            received = views
        arrived.append((received, sent[what]))
        for number, (held, expected) in enumerate(arrived[:-1], 1):
            _expect(case, held, expected, "D6", f"when object {len(arrived)} had arrived, object {number} had changed")


@check("D7")
def test_a_small_view_moves_its_own_bytes_only(case: Case) -> None:
    """Seen by the memory that the process has at most, compared with a tensor that is its whole memory."""
    source, destination = case.actors(2)
    try:
        alone = min(_memory_for(case, source, destination, SMALL) for _ in range(3))
        within = min(_memory_for(case, source, destination, LARGE) for _ in range(3))
    except OSError as error:
        raise case.cannot(f"this system does not tell how much memory a process had at most ({error})") from None
    case.require(
        within - alone < LARGE // 2,
        "D7",
        f"to move a view of {SMALL} bytes took {max(alone, 0):,} bytes of memory where they are the whole storage, and "
        f"{within:,} bytes where the storage has {LARGE:,}",
    )


@check("D8")
def test_tensors_are_complete_and_on_the_promised_device(case: Case) -> None:
    payload = case.payload(min(case.budget.big_bytes, LARGE), count=3)
    source, destination = case.actors(2)
    tensors = source.build(payload, case.bench.device)
    obj_id, metadata = case.described(source, tensors)
    comm = case.ok(case.driver.communicator(source, destination))
    sending = begin_send(case, source, obj_id, tensors, metadata, comm)
    received = case.ok(destination.recv(obj_id, metadata, comm))
    _expect_complete(case, received, payload)
    if sending is not None:
        case.ok(sending)
    else:
        comm = case.comm_for_get(destination)
        request = case.ok(destination.fetch(obj_id, metadata, comm))
        received = case.ok(destination.wait(obj_id, request))
        _expect_complete(case, received, payload)
    promised = str(case.world.loads(metadata).tensor_device).partition(":")[0]
    devices = received.apply(_device_types)
    case.require(
        devices == [promised],
        "D8",
        f"the metadata promise tensors on {promised}, and they arrived on {' and '.join(devices)}",
    )


@check("D8b")
def test_received_tensors_are_writable_and_contiguous(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source, destination = case.actors(2)
    received = case.ok(destination.consume(source.produce(payload, case.bench.device)), DELIVERY).part(0)
    case.unless(bool(received.differences(payload)))
    traits = received.apply(case.kind.traits, case.bench.device)
    case.require(not traits, "D8b", lambda: f"what arrived at {destination}: {traits[0]}")


def _arrives(case: Case, source: Process, destination: Process, payload: Payload, clause: str) -> bool:
    """Transfer a payload and free it again; False if the transport refuses it, which it may."""
    case.world.history.clear()  # that of a hundred others would only hide it
    case.going_through("sent", payload)
    tensors = source.build(payload, case.bench.device)
    seconds = case.patience.for_bytes(payload.nbytes) + payload.count * PER_TENSOR
    received = _transferred(case, source, destination, tensors, clause, seconds)
    tensors.drop()
    if received is None:
        return False
    _expect(case, received, payload, clause, f"{_words(payload)} arrived changed")
    received.drop()
    return True


def _arrives_exactly(case: Case, source: Process, destination: Process, payload: Payload) -> bool:
    """Transfer a payload that the transport accepts, and free it again; whether it arrived as it was sent."""
    tensors = source.build(payload, case.bench.device)
    received = _transferred(case, source, destination, tensors, "D1", case.patience.call)
    return received is not None and not received.differences(payload)


def _transferred(
    case: Case, source: Process, destination: Process, tensors: Held, clause: str, seconds: float
) -> Held | None:
    """Describe tensors, transfer and free them; what arrived, or None if the transport refuses them."""
    obj_id = case.world.new_object_id()
    metadata = _accepted(case, source, obj_id, tensors, seconds)
    if metadata is None:
        return None
    received = transfer(case, source, destination, obj_id, tensors, metadata, clause=clause, seconds=seconds)
    case.error(source.collect(obj_id, metadata, tensors))
    return received


def _all_in_one(case: Case, source: Process, destination: Process, payloads: list[Payload]) -> Held | None:
    """Transfer the tensors of several payloads as one object; None if the transport refuses it."""
    tensors = source.make(_tensors_of_all, payloads, case.bench.device)
    return _transferred(case, source, destination, tensors, "D2", case.patience.call)


def _accepted(case: Case, source: Process, obj_id: str, tensors: Held, seconds: float | None = None) -> bytes | None:
    """The metadata of tensors that the transport may refuse; None if it does."""
    extracting = source.extract(obj_id, tensors)
    return None if case.error(extracting, seconds=seconds) is not None else case.ok(extracting)


def _words(payload: Payload) -> str:
    """What a payload is made of, without the number of its tensors."""
    return repr(payload).partition(": ")[2]


def _tensors_of_all(payloads: list[Payload], device: str) -> list[Any]:
    return [tensor for payload in payloads for tensor in payload.build(device)]


def _views(tensors: list[Any]) -> list[Any]:
    return [tensor[...] for tensor in tensors]


def _amount(values: Any) -> str:
    return f"{len(values)} tensors" if isinstance(values, list) else f"a {type(values).__name__}"


def _each_alone(tensors: list[Any]) -> list[list[Any]]:
    return [[tensor] for tensor in tensors]


def _sizes(largest: int) -> list[int]:
    """Sizes in bytes at and around all powers of two, and at odd numbers of pages."""
    edges = [1 << power for power in range(largest.bit_length())]
    sizes = {edge + more for edge in edges if edge <= EDGES for more in (-1, 0, 1)}
    sizes |= {min(edge + 1, largest) for edge in edges if edge > EDGES}
    sizes |= {pages * 4096 + more for pages in (3, 5, 15, 17) for more in (-1, 0, 1)}
    return sorted(size for size in sizes if 0 < size <= largest)


def _seen(tensors: list[Any], kind: PayloadKind) -> Fingerprint:
    """A fingerprint without addresses: memory that moves with all its contents is nothing a user sees."""
    fingerprint = kind.fingerprint(tensors)
    facts = tuple({name: fact for name, fact in each.items() if name != "data pointer"} for each in fingerprint.facts)
    return dataclasses.replace(fingerprint, facts=facts)


def _changes(tensors: list[Any], before: Fingerprint) -> list[str]:
    return before.changes(tensors)


def _expect_complete(case: Case, received: Held, payload: Payload) -> None:
    """What was in the tensors right after they had been returned is what was sent."""
    at_once = received.derive(_copied_elsewhere)
    _expect(case, at_once, payload, "D8", "right after the tensors had been returned they were not complete")


def _expect(case: Case, held: Held, payload: Payload, clause: str, otherwise: str) -> None:
    """What is kept equals the payload; `otherwise` says what happened if it does not."""
    differences = held.differences(payload)
    case.require(not differences, clause, lambda: f"{otherwise}: {differences[0]}")


def _copied_elsewhere(tensors: Any) -> Any:
    """Copies made at once, as a user's own stream would read them; the last tensor first, as it comes last."""
    if not isinstance(tensors, list):
        return tensors
    if "cuda" in _device_types(tensors):
        import torch

        with torch.cuda.stream(torch.cuda.Stream()):
            return [tensor.cpu() for tensor in tensors[::-1]][::-1]
    last_first = [
        tensor.detach().clone() if hasattr(tensor, "detach") else copy.deepcopy(tensor) for tensor in tensors[::-1]
    ]
    return last_first[::-1]


def _device_types(tensors: list[Any]) -> list[str]:
    """The different types of device that tensors are on; what names no device is on the CPU."""
    devices = [getattr(tensor, "device", "cpu") for tensor in tensors]
    return sorted({getattr(device, "platform", "") or str(device).partition(":")[0] for device in devices})


def _memory_for(case: Case, source: Process, destination: Process, storage: int) -> int:
    """The memory that it takes to transfer a view of `SMALL` bytes of a storage, beyond what was in use before."""
    view = source.build(case.kind.small_view(SMALL, storage), case.bench.device)
    meters = [process.make(list) for process in (source, destination)]
    before = [meter.apply(_forget_peak, case.bench.device) for meter in meters]
    received = _transferred(case, source, destination, view, "D3", case.patience.call)
    taken = [meter.apply(_peak, case.bench.device) for meter in meters]
    for held in (view, received, *meters):
        if held is not None:
            held.drop()
    return max(after - begun for after, begun in zip(taken, before, strict=True))


def _forget_peak(_: object, device: str) -> int:
    """Let `_peak` start anew; the bytes in use now.

    Raises:
        OSError: the system does not offer this.
    """
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return psutil.Process().memory_info().rss


def _peak(_: object, device: str) -> int:
    """The most bytes in use at once since `_forget_peak`."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
