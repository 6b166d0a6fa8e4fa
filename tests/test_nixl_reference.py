"""The NIXL transport: two or more instances in one process, on threads, and once two processes; on CPUs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from reference_transports.nixl import NixlTransport, agent as agents, memory, transfer, transport
from reference_transports.nixl.agent import Agent, Registration

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:ComplexHalf support")]
SOON = 20.0
"""Seconds within which whatever should happen has happened, on a machine that is busy with other things."""
COMM = CommunicatorMetadata()


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """Making an agent takes a while."""
    return NixlTransport(), NixlTransport()


@pytest.fixture
def source(pair: tuple[Any, Any]) -> Iterator[Any]:
    yield pair[0]
    for obj_id in list(pair[0]._shared):
        pair[0].garbage_collect(obj_id, None, [])


@pytest.fixture
def destination(pair: tuple[Any, Any]) -> Any:
    return pair[1]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Registration]]:
    """What is registered of objects and of what comes of them; nothing may be left."""
    objects: list[Registration] = []
    register, close, more_cells = Registration.__init__, Registration.close, Agent._more_cells

    def registering(self: Registration, *args: Any) -> None:
        register(self, *args)
        objects.append(self)

    def closing(self: Registration) -> None:
        objects.remove(self)
        close(self)

    def making_cells(self: Agent) -> Any:  # for good
        cells = more_cells(self)
        objects[:] = [each for each in objects if each.table[0, 0] != cells[0].table[0, 0]]
        return cells

    monkeypatch.setattr(Registration, "__init__", registering)
    monkeypatch.setattr(Agent, "_more_cells", making_cells)
    monkeypatch.setattr(Registration, "close", closing)
    yield objects


def extract(source: NixlTransport, obj_id: str, tensors: list[Any]) -> Any:
    return pickle.loads(pickle.dumps(source.extract_tensor_transport_metadata(obj_id, tensors)))


def send(
    source: NixlTransport, destination: NixlTransport, tensors: list[Any], buffers: Any = None, obj_id: str = "object"
) -> list[torch.Tensor]:
    """A whole life of an object."""
    metadata = extract(source, obj_id, tensors)
    received = destination.recv_multiple_tensors(obj_id, metadata, COMM, buffers)
    source.garbage_collect(obj_id, metadata, tensors)
    return received


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in expected] and all(
        bool((a.contiguous().view(-1) == b.contiguous().resolve_conj().resolve_neg().view(-1)).all())
        for a, b in zip(found, expected, strict=True)
    )


def settled(condition: Any) -> bool:
    give_up = time.monotonic() + SOON
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.005)
    return condition()


def in_flight(destination: Any) -> set[str]:
    """What is still on its way; requests of earlier tests may be held by the exceptions that these ended with."""
    return {each.obj_id for each in destination._fetching if not each._ended.is_set()}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def held_up(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Reads of data, not those of tokens, end when this is set; at the latest before the pool's threads must end."""
    go, read = threading.Event(), Agent.read

    def reading(self: Agent, name: str, local: Any, remote: Any) -> Iterator[bool]:
        while local[0][0, 1] != agents.CELL_BYTES and not go.is_set():
            yield True
        yield from read(self, name, local, remote)

    monkeypatch.setattr(Agent, "read", reading)
    yield go
    go.set()


SMALL = memory._SMALL["cpu"]
SIZES = [1, 2, 3, SMALL - 1, SMALL, SMALL + 1, 1 << 20, (1 << 20) + 3, (9 << 20) + 1]
OBJECTS = {
    "one number": lambda: [torch.tensor(3.5)],
    "sizes": lambda: [torch.arange(size, dtype=torch.int32).to(torch.uint8) for size in SIZES],
    "sizes in reverse": lambda: [torch.arange(size, dtype=torch.int32).to(torch.uint8) for size in reversed(SIZES)],
    "nothing in them": lambda: [torch.zeros(0), torch.zeros(3, 0, dtype=torch.int8)],
    "something in some": lambda: [
        torch.zeros(0),
        torch.ones(2),
        torch.zeros(2, 0),
        torch.ones(1 << 15),
        torch.zeros(0),
    ],
    "many": lambda: [torch.full((number % 7 + 1,), number) for number in range(1000)],
    "dtypes": lambda: [
        torch.tensor([1, 0, 3]).to(dtype)
        for dtype in (
            torch.bool,
            torch.int8,
            torch.uint16,
            torch.float16,
            torch.bfloat16,
            torch.float64,
            torch.complex64,
        )
    ],
    "strided": lambda: [
        torch.arange(120).view(10, 12)[::2, ::3],
        torch.randn(300, 200).t(),
        torch.randn(3, 1).expand(3, 4),
    ],
    "lazy": lambda: [torch.tensor([1 + 2j, 3 - 4j]).conj(), torch.tensor([1 + 2j]).conj().imag],
    "gradient": lambda: [torch.nn.Parameter(torch.randn(5)), torch.randn(5, requires_grad=True)],
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_tensors_arrive_as_they_were(source: Any, destination: Any, registered: list[Any], make: Any) -> None:
    tensors = make()
    for number in range(2):
        assert same(send(source, destination, tensors, obj_id=str(number)), tensors)
    buffers = [torch.empty(each.shape, dtype=each.dtype) for each in tensors]
    received = send(source, destination, tensors, buffers)
    assert all(found is buffer for found, buffer in zip(received, buffers, strict=True))
    assert same(buffers, tensors)
    assert settled(lambda: not registered)


def test_an_object_without_tensors_needs_no_nixl(destination: Any) -> None:
    source: Any = NixlTransport()
    metadata = extract(source, "empty", [])
    assert (metadata.tensor_meta, metadata.tensor_device) == ([], None)
    assert destination.recv_multiple_tensors("empty", metadata, COMM) == []
    source.garbage_collect("empty", metadata, [])
    assert source._engine is None


def test_without_nixl_only_its_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nixl._api", None)
    with pytest.raises(ImportError, match="pip install nixl"):
        extract(NixlTransport(), "object", [torch.zeros(1)])


@pytest.mark.parametrize(
    "tensors",
    [
        [np.zeros(2)],
        [torch.zeros(2, device="meta")],
        [torch.zeros(2), torch.zeros(2, device="meta")],
        [torch.zeros(2, 2).to_sparse()],
    ],
    ids=["array", "meta", "mixed", "sparse"],
)
def test_what_cannot_be_carried_is_refused(source: Any, tensors: list[Any], registered: list[Any]) -> None:
    with pytest.raises(ValueError, match="cannot be carried"):
        extract(source, "object", tensors)
    assert not source._shared
    assert not registered


def test_objects_that_share_memory_live_and_die_apart(source: Any, destination: Any, registered: list[Any]) -> None:
    base = torch.arange(100_000)
    objects = {
        "base": [base],
        "view": [base[50_000:]],
        "twice": [base, base[10:], base],
        "overlapping": [base[5:90_000]],
    }
    described = {obj_id: extract(source, obj_id, tensors) for obj_id, tensors in objects.items()}
    for freed in objects:
        for obj_id in described:
            assert same(destination.recv_multiple_tensors(obj_id, described[obj_id], COMM), objects[obj_id])
        source.garbage_collect(freed, described.pop(freed), objects[freed])
    assert settled(lambda: not registered)


def test_extracted_twice_is_freed_at_once(source: Any, destination: Any, registered: list[Any]) -> None:
    tensors = [torch.ones(5), torch.ones(1 << 20)]
    first, second = (extract(source, "object", tensors) for _ in range(2))
    assert first == second
    assert same(destination.recv_multiple_tensors("object", second, COMM), tensors)
    source.garbage_collect("object", first, tensors)
    assert not registered
    source.garbage_collect("object", first, tensors)
    with pytest.raises(ConnectionError, match="freed"):
        destination.recv_multiple_tensors("object", second, COMM)


def test_many_short_waits_leave_one_helper(
    source: Any, destination: Any, pool: ThreadPoolExecutor, held_up: threading.Event
) -> None:
    metadata = {obj_id: extract(source, obj_id, [torch.ones(1 << 19)]) for obj_id in "ab"}
    requests = [destination.fetch_multiple_tensors(obj_id, metadata[obj_id], COMM) for obj_id in "ab"]
    # The mover is free for others while somebody waits.
    waiting = [pool.submit(destination.wait_fetch_complete, requests[0], timeout) for timeout in (-1, SOON)]
    for _ in range(20):
        with pytest.raises(TimeoutError):
            destination.wait_fetch_complete(requests[1], 0.001)
    held_up.set()
    assert settled(requests[1].transfer._quiet.is_set)
    assert all(same(each.result(SOON), [torch.ones(1 << 19)]) for each in waiting)


def test_what_is_freed_is_not_kept(source: Any, destination: Any) -> None:
    tensors = [torch.ones(5), torch.ones(1 << 20), torch.ones(1 << 10, 1 << 10).t()]
    alive = [weakref.ref(each.untyped_storage()) for each in tensors]
    send(source, destination, tensors)
    tensors.clear()
    assert settled(lambda: not any(each() for each in alive))


def test_memory_that_is_used_again_is_new_memory(source: Any, destination: Any) -> None:
    room = torch.empty(1 << 20, dtype=torch.uint8)
    for number, size in enumerate((100_000, 1 << 20, 70_000, 999_999, 100_000)):
        assert same(send(source, destination, [room[:size].fill_(number)]), [room[:size]])


def test_an_object_that_is_freed_meanwhile_does_not_arrive(
    source: Any, destination: Any, held_up: threading.Event
) -> None:
    tensors = [torch.ones(1 << 20)]
    metadata = extract(source, "object", tensors)
    request = destination.fetch_multiple_tensors("object", metadata, COMM)
    source.garbage_collect("object", metadata, tensors)
    tensors[0].zero_()
    held_up.set()
    with pytest.raises(ConnectionError, match="freed"):
        destination.wait_fetch_complete(request, SOON)
    assert same(send(source, destination, tensors), tensors)
    assert destination._engine.agent._peers[source._engine.agent.name].transfers == 0


def test_freeing_others_leaves_a_fetch_alone(source: Any, destination: Any, held_up: threading.Event) -> None:
    objects = {str(number): [torch.full((1 << 19,), number)] for number in range(6)}
    described = {obj_id: extract(source, obj_id, tensors) for obj_id, tensors in objects.items()}
    requests = {obj_id: destination.fetch_multiple_tensors(obj_id, described[obj_id], COMM) for obj_id in "024"}
    for obj_id in "135":
        source.garbage_collect(obj_id, described[obj_id], objects[obj_id])
    held_up.set()
    for obj_id in "402":
        assert same(destination.wait_fetch_complete(requests[obj_id], SOON), objects[obj_id])


@pytest.mark.parametrize("count", [1, 40])
def test_abort_ends_the_wait(
    source: Any,
    destination: Any,
    registered: list[Any],
    pool: ThreadPoolExecutor,
    held_up: threading.Event,
    count: int,
) -> None:
    tensors = [torch.ones((2 << 20) // count) for _ in range(count)]
    metadata, other = extract(source, "object", tensors), extract(source, "other", [torch.ones(9)])
    receiving = pool.submit(destination.recv_multiple_tensors, "object", metadata, COMM)
    beside = destination.fetch_multiple_tensors("other", other, COMM)
    assert settled(lambda: in_flight(destination) == {"object", "other"})
    for _ in range(3):
        destination.abort_transport("object", COMM)
    with pytest.raises(ConnectionAbortedError):
        receiving.result(SOON)
    held_up.set()
    assert same(destination.wait_fetch_complete(beside, SOON), [torch.ones(9)])
    assert same(destination.recv_multiple_tensors("object", metadata, COMM), tensors)
    source.garbage_collect("object", metadata, tensors)
    source.garbage_collect("other", other, [])
    assert settled(lambda: not registered)


def test_an_abort_ends_when_target_buffers_are_left_alone(
    source: Any, destination: Any, held_up: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_FIRST_PIECE", 1 << 20)
    metadata = extract(source, "object", [torch.ones(3 << 20)])
    buffers = [torch.zeros(3 << 20)]
    request = destination.fetch_multiple_tensors("object", metadata, COMM, buffers)
    assert settled(lambda: request.transfer._writing)
    destination.abort_transport("object", COMM)
    with pytest.raises(TimeoutError):
        destination.wait_fetch_complete(request, 0.05)
    held_up.set()
    with pytest.raises(ConnectionAbortedError):
        destination.wait_fetch_complete(request, SOON)
    assert not buffers[0][-1]
    buffers[0].zero_()
    assert same(destination.recv_multiple_tensors("object", metadata, COMM, buffers), [torch.ones(3 << 20)])


def test_aborts_that_come_too_late_or_too_early_change_nothing(source: Any, destination: Any) -> None:
    metadata = extract(source, "object", [torch.ones(3)])
    for _ in range(2):
        destination.abort_transport("object", COMM)
        destination.abort_transport("unknown", COMM)
        assert same(destination.recv_multiple_tensors("object", metadata, COMM), [torch.ones(3)])
    assert not in_flight(destination)


def test_an_interrupted_transfer_has_failed(
    source: Any, destination: Any, registered: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = extract(source, "interrupted", [torch.ones(3)])
    with monkeypatch.context() as patch:
        patch.setattr(Agent, "read", interrupted)
        with pytest.raises(KeyboardInterrupt) as raised:
            destination.fetch_multiple_tensors("interrupted", metadata, COMM)
    [found] = [each for each in destination._fetching if each.obj_id == "interrupted"]
    assert raised.value
    assert found.see_through(SOON)
    assert found.failure is not None
    assert len(registered) == 1
    assert same(destination.recv_multiple_tensors("interrupted", metadata, COMM), [torch.ones(3)])


def interrupted(*_: Any) -> Iterator[bool]:
    raise KeyboardInterrupt
    yield True


def test_timeouts(source: Any, destination: Any, held_up: threading.Event) -> None:
    metadata = extract(source, "object", [torch.ones(1 << 19)])
    request = destination.fetch_multiple_tensors("object", metadata, COMM)
    for timeout in (0, 0.05):
        with pytest.raises(TimeoutError):
            destination.wait_fetch_complete(request, timeout)
    held_up.set()
    assert same(destination.wait_fetch_complete(request, SOON), [torch.ones(1 << 19)])
    assert same(destination.wait_fetch_complete(request, 0), [torch.ones(1 << 19)])


def test_a_dropped_request_gives_everything_back(
    source: Any, destination: Any, registered: list[Any], held_up: threading.Event
) -> None:
    tensors = [torch.ones(1 << 19)]
    metadata = extract(source, "object", tensors)
    for buffers in (None, [torch.zeros(1 << 19)]):
        request = destination.fetch_multiple_tensors("object", metadata, COMM, buffers)
        assert settled(lambda: len(registered) == 2)
        threading.Timer(0.1, held_up.set).start()
        del request
        assert settled(lambda: len(registered) == 1 and not in_flight(destination))
        held_up.clear()


def test_buffers_that_do_not_fit_are_refused(source: Any, destination: Any) -> None:
    metadata = extract(source, "object", [torch.ones(4)])
    for buffers in (
        [],
        [torch.zeros(4), torch.zeros(4)],
        [torch.zeros(5)],
        [torch.zeros(4, dtype=torch.int32)],
        [torch.zeros(8)[::2]],
        [torch.zeros(4, device="meta")],
    ):
        with pytest.raises(ValueError, match=r"buffer|carried"):
            destination.fetch_multiple_tensors("object", metadata, COMM, buffers)


def test_nothing_but_the_buffers_is_written(source: Any, destination: Any) -> None:
    room = torch.zeros(1 << 20)
    send(source, destination, [torch.ones(100), torch.ones(1 << 18)], [room[10:110], room[200 : 200 + (1 << 18)]])
    assert room.sum() == 100 + (1 << 18)
    assert room[10:110].all()
    assert room[200 : 200 + (1 << 18)].all()


def test_damaged_metadata_are_refused(source: Any, destination: Any) -> None:
    metadata = extract(source, "object", [torch.ones(100), torch.ones(1 << 20)])
    with pytest.raises(ValueError, match="not the metadata"):
        destination.recv_multiple_tensors("object", TensorTransportMetadata(metadata.tensor_meta, "cpu"), COMM)
    for field in fields(metadata):
        value = getattr(metadata, field.name)
        for other in (None, value[: len(value) // 2]) if field.name != "tensor_device" else ():
            with pytest.raises(ValueError, match="garbled"):
                destination.recv_multiple_tensors("object", replace(metadata, **{field.name: other}), COMM)
    assert len(destination.recv_multiple_tensors("object", metadata, COMM)) == 2


def test_two_threads_that_come_first_get_one_agent(source: Any) -> None:
    destination: Any = NixlTransport()
    metadata = extract(source, "object", [torch.ones(3)])
    ready = threading.Barrier(2)

    def run(use: Any, *args: Any) -> Any:
        ready.wait(SOON)
        return use(*args)

    with ThreadPoolExecutor() as pool:
        receiving = pool.submit(run, destination.recv_multiple_tensors, "object", metadata, COMM)
        extracting = pool.submit(run, extract, destination, "another", [torch.zeros(3)])
        assert same(receiving.result(SOON), [torch.ones(3)])
        assert extracting.result(SOON).agent == destination._engine.agent.name
    assert same(source.recv_multiple_tensors("another", extracting.result(), COMM), [torch.zeros(3)])


def test_a_process_may_read_from_itself(source: Any) -> None:
    assert same(send(source, source, [torch.ones(3), torch.ones(1 << 20)]), [torch.ones(3), torch.ones(1 << 20)])


def test_what_is_known_of_peers_has_limits(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    destination: Any = NixlTransport()
    monkeypatch.setattr(agents, "_MOST_PEERS", 1)
    monkeypatch.setattr(agents, "_MOST_TOLD", 1000)
    peers: list[Any] = [source, NixlTransport(), source]
    for peer in peers:
        for number in range(5):
            assert same(send(peer, destination, [torch.full((3,), number)]), [torch.full((3,), number)])
        assert list(destination._engine.agent._peers) == [peer._engine.agent.name]
        assert destination._engine.agent._peers[peer._engine.agent.name].told_bytes <= 2000


@pytest.mark.parametrize("key_changes", [False, True])
def test_memory_that_is_offered_again_is_nothing_new(
    source: Any, monkeypatch: pytest.MonkeyPatch, key_changes: bool
) -> None:
    destination: Any = NixlTransport()
    tensors = [torch.ones(1 << 12), torch.ones(1 << 13)]
    describe, seen = Registration.describe, []

    def describing(self: Registration, **how: Any) -> bytes:
        seen.append(describe(self, **how))
        self.section = seen[-1] + bytes([len(seen)]) if key_changes else seen[-1]
        return self.section

    monkeypatch.setattr(Registration, "describe", describing)
    for number in range(5):
        tensors[0].fill_(number)
        assert same(send(source, destination, tensors, obj_id=str(number)), tensors)
    sections = len(destination._engine.agent._peers[source._engine.agent.name].told) - 1  # without the cell's
    assert sections == (5 if key_changes else 1)


def test_what_is_kept_of_offers_has_a_limit(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "_MOST_RETIRED", 1000)
    room = torch.zeros(1 << 20)
    for number in range(20):
        source.garbage_collect("object", extract(source, "object", [room[number:]]), [])
        source.garbage_collect("object", extract(source, "object", [room[number:]]), [])
    retired = source._engine.agent._retired
    assert 500 < retired._bytes == sum(len(each.section) for each in retired._last.values()) <= 1000


def test_memory_that_is_offered_twice_at_a_time_has_two_numbers(source: Any, destination: Any) -> None:
    tensors = [torch.ones(1 << 12)]
    for _ in range(2):
        described = {obj_id: extract(source, obj_id, tensors) for obj_id in "ab"}
        assert described["a"].places != described["b"].places
        for obj_id, metadata in described.items():
            assert same(destination.recv_multiple_tensors(obj_id, metadata, COMM), tensors)
            source.garbage_collect(obj_id, metadata, tensors)


def test_the_threads_go_with_the_transport(destination: Any) -> None:
    source: Any = NixlTransport()
    assert same(send(source, destination, [torch.ones(1 << 19)]), [torch.ones(1 << 19)])
    send(destination, source, [torch.ones(1 << 19)])
    threads = [source._engine.mover._thread, destination._engine.mover._thread]
    del source
    gc.collect()
    assert settled(lambda: not threads[0].is_alive())
    assert threads[1].is_alive()


def test_a_forked_process_starts_anew(source: Any, destination: Any) -> None:
    metadata = extract(source, "object", [torch.ones(3)])
    assert same(destination.recv_multiple_tensors("object", metadata, COMM), [torch.ones(3)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that other threads do not come along is the point
        child = os.fork()
    if child == 0:
        try:
            right = same(destination.recv_multiple_tensors("object", metadata, COMM), [torch.ones(3)])
            os._exit(0 if right and len(transport._INHERITED) == 1 else 1)
        finally:
            os._exit(2)
    status: list[int] = []
    assert settled(lambda: bool(status or ((gone := os.waitpid(child, os.WNOHANG))[0] and not status.append(gone[1]))))
    assert status == [0]
    assert same(destination.recv_multiple_tensors("object", metadata, COMM), [torch.ones(3)])


def test_the_class_travels() -> None:
    assert pickle.loads(pickle.dumps(NixlTransport)) is NixlTransport


def _serve(pipe: Any) -> None:
    source, tensors = NixlTransport(), [torch.ones(3), torch.ones(1 << 20)]
    pipe.send([source.extract_tensor_transport_metadata(obj_id, tensors) for obj_id in ("first", "second")])
    pipe.recv()


def test_a_dead_source_is_an_error_and_forgotten(source: Any, destination: Any, registered: list[Any]) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=[theirs], daemon=True)
    process.start()
    try:
        assert ours.poll(100)
        first, second = ours.recv()
        assert same(destination.recv_multiple_tensors("first", first, COMM), [torch.ones(3), torch.ones(1 << 20)])
    finally:
        process.kill()
        process.join(SOON)
    for metadata in (second, first):
        request = destination.fetch_multiple_tensors("second", metadata, COMM)
        with pytest.raises(ConnectionError):
            destination.wait_fetch_complete(request, SOON)
        assert same(send(source, destination, [torch.ones(3)]), [torch.ones(3)])
    assert settled(lambda: first.agent not in destination._engine.agent._peers)
    assert settled(lambda: not registered)
