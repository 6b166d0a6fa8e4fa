"""The NIXL transport, in one process and on CPUs: waits, timeouts, and what ends a transfer early."""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from nixl_tools import COMM, SOON, extract, in_flight, same, send, settled

from reference_transports.nixl import agent as agents, memory, transfer
from reference_transports.nixl.agent import Agent
from reference_transports.nixl.pace import Pace, Paces
from reference_transports.nixl.peer import Peer

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


def in_pieces_of(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has been learnt."""
    pace = Pace()
    pace.piece = nbytes
    monkeypatch.setattr(pace, "count", lambda nbytes, seconds: None)
    monkeypatch.setattr(Paces, "of", lambda *_: pace)


def test_an_abort_ends_when_target_buffers_are_left_alone(
    source: Any, destination: Any, held_up: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = extract(source, "object", [torch.ones(3 << 20)])
    in_pieces_of(1 << 20, monkeypatch)
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


class Pieces:
    """Stands for an agent: what is read of it comes piece by piece, of which two are on their way at once."""

    def __init__(self, *fates: str) -> None:
        self.fates = iter(fates)
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most = 0

    def read(self, peer: Peer, local: Any, remote: Any) -> Iterator[bool]:
        number, fate = len(self.begun), next(self.fates, "well")
        if fate == "never begins":
            raise ConnectionError("it cannot begin")
        self.begun.append(number)
        self.most = max(self.most, len(self.begun) - len(self.ended))
        try:
            for _ in range(2):
                yield True
            if fate == "breaks":
                raise ConnectionError("it broke")
        finally:
            self.ended.append(number)


@pytest.fixture
def filling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pieces], Iterator[bool]]:
    """The steps of a transfer of five pieces, from such an agent."""
    peer = Peer("it")
    pace = peer.paces.of("cpu", "cpu")
    pace.piece = 1 << 10
    monkeypatch.setattr(pace, "count", lambda nbytes, seconds: None)
    places = np.array([(0, 5 << 10, 1)], np.int64)
    source = transfer.NixlMetadata([], "cpu", agent="it", places=places.tobytes())
    landing: Any = SimpleNamespace(places=places, device="cpu")
    engine: Any = SimpleNamespace(agent=None, mover=None)

    def fill(pieces: Pieces) -> Iterator[bool]:
        nothing = transfer.Transfer("object", engine, source, [], False)
        return nothing._fill(cast(Agent, pieces), peer, source, landing, 5 << 10)

    return fill


def test_two_pieces_are_on_their_way_at_once(filling: Callable[[Pieces], Iterator[bool]]) -> None:
    pieces = Pieces()
    list(filling(pieces))
    assert (pieces.begun, pieces.ended, pieces.most) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], 2)


@pytest.mark.parametrize(
    ("fates", "begun"),
    [
        (("breaks", "well"), 2),
        (("well", "breaks"), 3),
        (("breaks", "breaks"), 2),
        (("well", "never begins"), 1),
        (("never begins",), 0),
    ],
)
def test_whatever_fails_every_piece_has_ended_before(
    fates: tuple[str, ...], begun: int, filling: Callable[[Pieces], Iterator[bool]]
) -> None:
    pieces = Pieces(*fates)
    with pytest.raises(ConnectionError):
        list(filling(pieces))
    assert len(pieces.begun) == begun
    assert sorted(pieces.ended) == pieces.begun


def test_given_up_in_the_middle_both_have_ended(filling: Callable[[Pieces], Iterator[bool]]) -> None:
    pieces = Pieces()
    steps: Any = filling(pieces)
    next(steps)
    assert (len(pieces.begun), pieces.ended) == (2, [])
    steps.close()
    assert sorted(pieces.ended) == [0, 1]


def test_nothing_is_kept_of_what_failed(
    source: Any, destination: Any, monkeypatch: pytest.MonkeyPatch, without_collections: None
) -> None:
    metadata = extract(source, "object", [torch.ones(1 << 20)])
    landed: list[weakref.ref[Any]] = []
    read = Agent.read

    def failing(self: Agent, peer: Peer, local: Any, remote: Any) -> Iterator[bool]:
        if local[0][0, 1] != agents.CELL_BYTES:
            [under_way] = [each for each in destination._fetching if each.obj_id == "object"]
            landed.append(weakref.ref(under_way._steps.gi_frame.f_locals["tensors"][0]))
            raise ConnectionError("it broke")
        yield from read(self, peer, local, remote)

    monkeypatch.setattr(Agent, "read", failing)
    with pytest.raises(ConnectionError):
        destination.recv_multiple_tensors("object", metadata, COMM)
    assert settled(lambda: landed and landed[0]() is None)


@pytest.fixture
def without_collections() -> Iterator[None]:
    """What is in a cycle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_pieces_grow_where_they_are_fast_and_shrink_where_they_are_not() -> None:
    pace, mib = Pace(), 1 << 20
    sizes = []
    for nbytes, seconds in [
        (16 * mib, 0.01), (32 * mib, 0.01), (63 * mib, 0.01), (64 * mib, 0.03), (64 * mib, 0.1), (5 * mib, 0.1), (1, 9),
    ]:  # fmt: skip
        pace.count(nbytes, seconds)
        sizes.append(pace.piece // mib)
    assert sizes == [32, 64, 64, 64, 32, 16, 16]
    for _ in range(9):
        pace.count(pace.piece, 0.0)
    assert pace.piece == 512 * mib


def test_an_object_comes_in_pieces_of_the_size_that_was_learnt(
    source: Any, destination: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts: list[tuple[int, int]] = []

    def cut(table: Any, begin: int, end: int) -> Any:
        cuts.append((begin, end))
        return memory.cut(table, begin, end)

    monkeypatch.setattr(transfer, "cut", cut)
    in_pieces_of(5 << 20, monkeypatch)
    metadata = extract(source, "object", tensors := [torch.ones(3 << 20)])
    assert same(destination.recv_multiple_tensors("object", metadata, COMM), tensors)
    assert sorted(set(cuts)) == [(0, 5 << 20), (5 << 20, 10 << 20), (10 << 20, 12 << 20)]


def test_what_is_learnt_of_one_peer_is_not_used_for_another(source: Any, destination: Any) -> None:
    other = type(source)()
    for each in (source, other):
        metadata = extract(each, "object", tensors := [torch.ones(9)])
        assert same(destination.recv_multiple_tensors("object", metadata, COMM), tensors)
    peers = destination._engine.agent._peers
    ours, theirs = (peers[each._engine.agent.name].paces.of("cpu", "cpu") for each in (source, other))
    assert ours is not theirs


@pytest.fixture
def fleeting() -> Iterator[torch.Tensor]:
    """A tensor of pages of its own, which nobody may touch when the test is over."""
    with mmap.mmap(-1, 4 << 20) as pages:
        yield torch.frombuffer(pages, dtype=torch.uint8)


def take_away(tensor: torch.Tensor, *, again: bool = False) -> None:
    """Let nobody read its memory any more, as if its allocator had given it back to the system; or again."""
    access = mmap.PROT_READ | mmap.PROT_WRITE if again else 0
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes), access) == 0


def test_a_read_of_memory_that_went_away_harms_no_other_transfer(
    source: Any, destination: Any, fleeting: torch.Tensor
) -> None:
    others = {name: [torch.full((1 << 22,), number)] for number, name in enumerate(("before", "beside", "after"))}
    described = {obj_id: extract(source, obj_id, tensors) for obj_id, tensors in others.items()}
    for _ in range(10):
        metadata = extract(source, "gone", [fleeting])
        requests = {"before": destination.fetch_multiple_tensors("before", described["before"], COMM)}
        take_away(fleeting)
        lost = destination.fetch_multiple_tensors("gone", metadata, COMM)
        requests["beside"] = destination.fetch_multiple_tensors("beside", described["beside"], COMM)
        for obj_id, request in requests.items():
            assert same(destination.wait_fetch_complete(request, SOON), others[obj_id])
        assert same(destination.recv_multiple_tensors("after", described["after"], COMM), others["after"])
        with pytest.raises(ConnectionError, match="the connection was lost"):
            destination.wait_fetch_complete(lost, SOON)
        take_away(fleeting, again=True)
        source.garbage_collect("gone", metadata, [])
    assert destination._engine.agent._peers[source._engine.agent.name].transfers == 0
