"""The NIXL transport on CPUs: its agents, what they know of each other, and the processes that they are in."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from nixl_tools import COMM, SOON, extract, same, send, settled

from rdt_conformance.observe.containers import registrations_of
from reference_transports.nixl import NixlTransport, agent as agents, transport
from reference_transports.nixl.agent import Registration
from reference_transports.nixl.peer import Peer

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:ComplexHalf support")]


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

    count, told = Peer.count, set[bytes]()

    def counting(self: Any, section: bytes) -> None:
        told.add(section)
        count(self, section)

    monkeypatch.setattr(Registration, "describe", describing)
    monkeypatch.setattr(Peer, "count", counting)
    for number in range(5):
        tensors[0].fill_(number)
        assert same(send(source, destination, tensors, obj_id=str(number)), tensors)
    assert len(told) - 1 == (5 if key_changes else 1)  # without the cell's
    assert destination._engine.agent._peers[source._engine.agent.name].told_bytes <= sum(map(len, told))


def test_what_is_kept_of_offers_has_a_limit(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "_MOST_RETIRED_BYTES", 1000)
    room = torch.zeros(1 << 20)
    for number in range(20):
        source.garbage_collect("object", extract(source, "object", [room[number:]]), [])
        source.garbage_collect("object", extract(source, "object", [room[number:]]), [])
    retired = source._engine.agent._retired
    assert 500 < retired._bytes == sum(len(each.section) for each in retired._last.values()) <= 1000


def test_what_is_kept_for_later_stops_growing_where_memory_never_comes_twice() -> None:
    """Else it looks like a leak for thousands of objects."""
    source, destination = NixlTransport(), NixlTransport()
    room, kept = torch.zeros(400, 1 << 12), []
    for number in range(400):
        assert same(send(source, destination, [room[number]], obj_id=str(number)), [room[number]])
        counts = registrations_of([source, destination])
        kept.append({path: count for path, count in counts.items() if "mover" not in path})  # what is under way
    assert sum(kept[50].values()) > sum(kept[10].values())
    assert kept[399] == kept[300]


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


IDLE = """
import time
from reference_transports.nixl.agent import Agent

agent, began = Agent(), time.process_time()
time.sleep(1)
print("used", time.process_time() - began)
"""


def test_an_agent_leaves_the_processor_to_others_while_nothing_happens() -> None:
    """In a process of its own: what other tests leave behind would count."""
    done = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout.rpartition("used")[2]) < 0.5


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


PATCHED = """
import ctypes, os
import torch
libc = ctypes.CDLL(None)
def code():
    functions = [ctypes.cast(getattr(libc, name), ctypes.c_void_p) for name in ("mmap", "munmap")]
    return [ctypes.string_at(function.value, 16) for function in functions]
before = code()
from reference_transports.nixl.agent import Agent
agent = Agent()
print(code() != before, os.environ.get("UCX_MEM_EVENTS"))
"""


@pytest.mark.parametrize(("setting", "said"), [({}, "False None"), ({"UCX_MEM_EVENTS": "y"}, "True y")])
def test_the_process_allocates_as_before_unless_the_user_wants_it_otherwise(setting: dict[str, str], said: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("with GPUs UCX does as it likes")
    done = subprocess.run(
        [sys.executable, "-c", PATCHED],
        env={name: value for name, value in os.environ.items() if name != "UCX_MEM_EVENTS"} | setting,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == said
