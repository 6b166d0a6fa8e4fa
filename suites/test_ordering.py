"""ORDERING: objects in flight at the same time keep their identity, and contents are never stale."""

from __future__ import annotations

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.moves import transfer
from rdt_conformance.engines.base import Lane


@check("O1")
def test_objects_in_flight_between_two_actors_keep_their_identity(case: Case) -> None:
    """Tasks are submitted in any order, and another source, which shares as many, transfers meanwhile."""
    count = case.draw(st.integers(2, 8), "objects")
    payloads = [case.payload(200, seed=number) for number in range(count)]
    payloads_aside = [case.payload(300, seed=count + number) for number in range(count)]
    source, destination, other = case.actors(3, first_at_one_end=True)
    refs = [source.produce(payload) for payload in payloads]
    refs_aside = [other.produce(payload) for payload in payloads_aside]
    arriving = []
    for number in case.draw(st.permutations(range(count)), "order"):
        arriving.append((destination.consume(refs[number]), payloads[number]))
        arriving.append((source.consume(refs_aside[number]), payloads_aside[number]))
        if case.draw(st.booleans(), "a third pair in between"):
            arriving.append((other.consume(refs[number]), payloads[number]))
    for pending, payload in arriving:
        case.arrived(case.ok(pending), payload)


@check("O1")
def test_a_receiver_that_comes_late_gets_its_own_object(case: Case) -> None:
    """Two objects go to two receivers, and the one whose object was sent first is the last to ask for it."""
    nbytes = case.draw(st.integers(1, 3000), "bytes of each")
    payloads = [case.payload(nbytes, seed=number) for number in range(2)]
    source, late, early = case.actors(3, first_at_one_end=True)
    refs = [source.produce(payload) for payload in payloads]
    with late.busy(lane=Lane.SYSTEM):
        for_late, for_early = late.consume(refs[0]), early.consume(refs[1])
        for_early.wait(0.05)  # a two-sided source may serve them in order only, so this need not come about
    case.arrived(case.ok(for_late), payloads[0])
    case.arrived(case.ok(for_early), payloads[1])


@check("O2", "O1")
def test_fetches_are_waited_for_in_any_order(case: Case) -> None:
    count = case.draw(st.integers(2, 6), "objects")
    payloads = [case.payload(200, seed=number) for number in range(count)]
    source, destination = case.actors(2)
    described = [case.described(source, source.build(payload)) for payload in payloads]
    comm = case.comm_for_get(destination)
    fetches = {}
    for number in case.draw(st.permutations(range(count)), "fetched in order"):
        obj_id, metadata = described[number]
        fetches[number] = (obj_id, case.ok(destination.fetch(obj_id, metadata, comm)))
    for number in case.draw(st.permutations(range(count)), "waited for in order"):
        obj_id, request = fetches[number]
        case.arrived(case.ok(destination.wait(obj_id, request)), payloads[number])


@check("O3")
def test_freeing_another_object_between_fetch_and_wait(case: Case) -> None:
    count = case.draw(st.integers(2, 5), "objects")
    nbytes = case.draw(st.sampled_from([100, 5_000, 1 << 20]), "bytes of each")
    payloads = [case.payload(nbytes, seed=number) for number in range(count)]
    source, destination = case.actors(2)
    tensors = [source.build(payload) for payload in payloads]
    described = [case.described(source, held) for held in tensors]
    comm = case.comm_for_get(destination)
    kept = case.draw(st.integers(0, count - 1), "kept")
    obj_id, metadata = described[kept]
    request = case.ok(destination.fetch(obj_id, metadata, comm))
    for number in range(count):
        if number != kept:
            case.ok(source.collect(*described[number], tensors[number]))
            tensors[number].drop()
    case.arrived(case.ok(destination.wait(obj_id, request)), payloads[kept])
    case.arrived(case.ok(destination.recv(obj_id, metadata, comm)), payloads[kept])


@check("O4")
def test_both_directions_at_once(case: Case) -> None:
    rounds = case.draw(st.integers(1, 4), "objects each way")
    nbytes = case.draw(st.sampled_from([64, 1 << 16, 1 << 21]), "bytes of each")
    one, two = case.actors(2)
    arriving = []
    for number in range(rounds):
        there, back = case.payload(nbytes, seed=2 * number), case.payload(nbytes, seed=2 * number + 1)
        ref_there, ref_back = one.produce(there), two.produce(back)
        arriving += [(two.consume(ref_there), there), (one.consume(ref_back), back)]
    for pending, payload in arriving:
        case.arrived(case.ok(pending), payload, clause="O1")


@check("O5", "O6")
def test_contents_are_those_at_extract_or_later(case: Case) -> None:
    payload = case.payload(case.draw(st.integers(1, 4096), "bytes"))
    changed = payload.inverse()
    source, destination = case.actors(2)
    tensors = source.build(payload)
    obj_id, metadata = case.described(source, tensors)
    tensors.apply(case.kind.overwrite, changed)
    received = transfer(case, source, destination, obj_id, tensors, metadata)
    as_extracted, as_changed = not received.differences(payload), not received.differences(changed)
    case.require(
        as_extracted or as_changed,
        "O5",
        "the tensor was overwritten after extract, and what arrived is neither the old contents nor the new",
    )
    case.fact("delivers", "the contents at extract" if as_extracted else "the contents at the transfer")


@check("O5")
def test_contents_are_never_older_than_extract(case: Case) -> None:
    """The same memory is shared, freed, overwritten and shared again under a new id."""
    payload = case.payload(case.draw(st.integers(1, 4096), "bytes"))
    source, destination = case.actors(2)
    tensors = source.build(payload)
    first = case.described(source, tensors)
    case.arrived(transfer(case, source, destination, first[0], tensors, first[1]), payload)
    if case.draw(st.booleans(), "first object freed"):
        case.ok(source.collect(*first, tensors))
    newer = payload.inverse()
    tensors.apply(case.kind.overwrite, newer)
    second = case.described(source, tensors)
    received = transfer(case, source, destination, second[0], tensors, second[1])
    case.arrived(received, newer)
