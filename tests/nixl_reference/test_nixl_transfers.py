"""The NIXL transport, in one process and on CPUs: waits, timeouts, and what ends a transfer early."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from nixl_tools import COMM, SOON, extract, in_flight, same, send, settled

from reference_transports.nixl import transfer
from reference_transports.nixl.agent import Agent

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:ComplexHalf support")]


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
