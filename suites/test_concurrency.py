"""CONCURRENCY: the threads that Ray runs, all inside one transport at once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.moves import begin_send, transfer
from rdt_conformance.checks.stirring import stirred
from rdt_conformance.engines.base import Lane, Pending
from rdt_conformance.engines.reference.user_code import nothing
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.payloads import Payload


@check("X1")
def test_all_lanes_inside_one_transport_at_once(case: Case) -> None:
    """The actor in the middle describes, fetches, receives, sends, frees and aborts."""
    count = case.draw(st.integers(16, 24), "objects of each kind")
    middle, peer = case.actors(2)
    inward = [_share(case, peer, number) for number in range(count)]
    outward = [_share(case, middle, 100 + number) for number in range(count)]
    old = [_share(case, middle, 200 + number) for number in range(count)]
    new = [(case.payload(500, seed=300 + number), case.world.new_object_id()) for number in range(count)]
    tensors = [middle.build(payload, case.bench.device) for payload, _ in new]
    traffic = _Traffic(case)
    with stirred(case, middle, peer):
        for number in range(count):
            traffic.describing.append(middle.extract(new[number][1], tensors[number]))
            traffic.transfer(inward[number], middle)
            traffic.free(old[number])
            traffic.transfer(outward[number], peer)
            traffic.fetch(inward[number], middle)
            traffic.abort_nothing(middle)
        metadata = traffic.come_to_rest()
    late = [_Shared(middle, *new[number], tensors[number], metadata[number]) for number in range(count)]
    for shared in late:
        traffic.transfer(shared, peer)
    traffic.come_to_rest()
    for shared in [*inward, *outward, *late]:
        traffic.free(shared)
    traffic.come_to_rest()


@check("X1")
def test_first_use_by_two_threads_at_once(case: Case) -> None:
    """A task shares tensors just while the arguments of the next one arrive.

    It puts them if it can: before a task that returns them, Ray has asked the actor whether it has the transport.
    """
    there, here = case.draw(case.payloads(), "outward"), case.draw(case.payloads(), "inward")
    case.renew()
    middle, peer = case.actors(2)
    ref_here = peer.produce(here)
    case.error(peer.run(nothing))
    if case.target.one_sided.value:
        putting = middle.put(middle.build(there))
        inward = middle.consume(ref_here)
        ref_there = case.ok(putting)
    else:
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
    receivers = case.draw(st.integers(3, case.budget.most_actors - 1), "receivers")
    count = case.draw(st.integers(8, 16), "objects")
    nbytes = case.draw(st.sampled_from([4096, 16, 1 << 18]), "bytes of each")
    source, *destinations = case.actors(receivers + 1, first_at_one_end=True)
    payloads = [case.payload(nbytes, seed=number) for number in range(count)]
    with stirred(case, source, *destinations):
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


@dataclass(frozen=True)
class _Shared:
    """An object that was described by single calls."""

    source: Process
    payload: Payload
    obj_id: str
    tensors: Held
    metadata: bytes


def _share(case: Case, source: Process, seed: int) -> _Shared:
    payload = case.payload(500, seed=seed)
    tensors = source.build(payload, case.bench.device)
    obj_id, metadata = case.described(source, tensors)
    return _Shared(source, payload, obj_id, tensors, metadata)


class _Traffic:
    """Calls under way, each with what it has to bring."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.describing: list[Pending[bytes]] = []
        self._arriving: list[tuple[Pending[Held], Payload]] = []
        self._fetching: list[tuple[Pending[Held], _Shared]] = []
        self._ending: list[Pending[None]] = []

    def transfer(self, shared: _Shared, destination: Process) -> None:
        """Begin both halves of a transfer, in the order in which Ray submits them."""
        comm = self._case.ok(self._case.driver.communicator(shared.source, destination))
        sending = begin_send(self._case, shared.source, shared.obj_id, shared.tensors, shared.metadata, comm)
        self._ending += [sending] if sending is not None else []
        self._arriving.append((destination.recv(shared.obj_id, shared.metadata, comm), shared.payload))

    def fetch(self, shared: _Shared, destination: Process) -> None:
        """Begin a fetch as for a get."""
        if self._case.target.one_sided.value:
            comm = self._case.comm_for_get(self._case.driver)
            self._fetching.append((destination.fetch(shared.obj_id, shared.metadata, comm), shared))

    def free(self, shared: _Shared) -> None:
        """Begin to free an object."""
        self._ending.append(shared.source.collect(shared.obj_id, shared.metadata, shared.tensors))

    def abort_nothing(self, process: Process) -> None:
        """Begin an abort that comes too late, for an object that is not on its way any more."""
        if self._case.target.can_abort.value:
            pair = (None, None) if self._case.target.one_sided.value else (process, process)
            comm = self._case.ok(self._case.driver.communicator(*pair))
            self._ending.append(process.abort(self._case.world.new_object_id(), comm, lane=Lane.ERROR))

    def come_to_rest(self) -> list[bytes]:
        """See every call to its end; the metadata of what was described."""
        case = self._case
        for pending, shared in self._fetching:
            request = case.ok(pending)
            self._arriving.append((request.process.wait(shared.obj_id, request), shared.payload))
        for pending, payload in self._arriving:
            case.arrived(case.ok(pending), payload)
        for pending in self._ending:
            case.ok(pending)
        described = [case.ok(pending) for pending in self.describing]
        for calls in (self.describing, self._arriving, self._fetching, self._ending):
            calls.clear()
        return described
