"""CONCURRENCY: the threads that Ray runs, all inside one transport at once."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.moves import transfer
from rdt_conformance.engines.base import Lane, Pending
from rdt_conformance.engines.reference.user_code import nothing


@check("X1")
def test_all_lanes_inside_one_transport_at_once(case: Case) -> None:
    """The actor in the middle extracts, receives, sends, frees and aborts at the same time."""
    count = case.draw(st.integers(2, 10), "objects each way")
    middle, peer = case.actors(2)
    inward = [case.payload(500, seed=number) for number in range(count)]
    outward = [case.payload(500, seed=count + number) for number in range(count)]
    arriving, quiet = [], []
    for there, here in zip(outward, inward, strict=True):
        arriving.append((peer.consume(middle.produce(there)), there))
        arriving.append((middle.consume(peer.produce(here)), here))
        quiet += _aborts_of_nothing(case, middle)
        if case.target.one_sided.value:
            put = middle.put(middle.build(there))
            arriving.append((peer.get(case.ok(put)), there))
    for pending, payload in arriving:
        case.arrived(case.ok(pending), payload)
    for pending in quiet:
        case.error(pending)


@check("X1")
def test_first_use_by_two_threads_at_once(case: Case) -> None:
    """A task shares tensors just while the arguments of the next one arrive."""
    there, here = case.draw(case.payloads(), "outward"), case.draw(case.payloads(), "inward")
    case.renew()
    middle, peer = case.actors(2)
    ref_here = peer.produce(here)
    case.error(peer.run(nothing))
    ref_there = middle.produce(there)
    inward = middle.consume(ref_here)
    outward = peer.consume(ref_there)
    case.arrived(case.ok(inward), here)
    case.arrived(case.ok(outward), there)


@check("X2")
def test_two_instances_in_one_process_are_independent(case: Case) -> None:
    """Both share a tensor under the same id, as two processes could without ever knowing."""
    one, two, destination = case.actors(3)
    first, second = case.payload(100, seed=1), case.payload(100, seed=2)
    obj_id = case.world.new_object_id()
    of_one, of_two = one.build(first), two.build(second)
    metadata_one = case.ok(one.extract(obj_id, of_one))
    metadata_two = case.ok(two.extract(obj_id, of_two))
    case.arrived(transfer(case, one, destination, obj_id, of_one, metadata_one), first)
    case.ok(one.collect(obj_id, metadata_one, of_one))
    case.arrived(transfer(case, two, destination, obj_id, of_two, metadata_two), second)
    case.ok(two.collect(obj_id, metadata_two, of_two))


@check("X3")
def test_many_receivers_of_many_objects(case: Case) -> None:
    receivers = case.draw(st.integers(2, 5), "receivers")
    count = case.draw(st.integers(2, 12), "objects")
    nbytes = case.draw(st.sampled_from([16, 4096, 1 << 18]), "bytes of each")
    source, *destinations = case.actors(receivers + 1)
    payloads = [case.payload(nbytes, seed=number) for number in range(count)]
    refs = [source.produce(payload) for payload in payloads]
    arriving = [
        (destination.consume(ref), payload)
        for ref, payload in zip(refs, payloads, strict=True)
        for destination in destinations
    ]
    for ref in refs:
        ref.drop()
    for pending, payload in arriving:
        case.arrived(case.ok(pending), payload)


def _aborts_of_nothing(case: Case, process: Any) -> list[Pending[None]]:
    """An abort that comes too late, for an object that is not on its way any more."""
    if not case.target.can_abort.value:
        return []
    source_and_destination = (None, None) if case.target.one_sided.value else (process, process)
    comm = case.ok(case.driver.communicator(*source_and_destination))
    return [process.abort(case.world.new_object_id(), comm, lane=Lane.ERROR)]
