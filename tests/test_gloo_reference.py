"""The gloo transport: two instances in one process, on threads, and once two processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ray.experimental import TensorTransportMetadata

from reference_transports._gloo_pair import PairGroup, _Exchange
from reference_transports._pairs import DESTINATION, SOURCE, GroupLost
from reference_transports._wire import Channel, _Socket
from reference_transports.gloo import GlooTransport

pytestmark = pytest.mark.timeout(60)
SOON = 20.0
"""Seconds within which whatever should happen has happened, on a machine that is busy with other things."""
ROOT = Path(__file__).parent.parent
BIG = 64 << 20
"""More bytes than sockets buffer."""


GLOO_CANNOT = [torch.bool, torch.bfloat16, torch.uint16, torch.complex64, torch.complex128, torch.float8_e5m2]
"""Dtypes that gloo itself does not know."""


class Pair:
    """A source and a destination, and an owner's part in between."""

    def __init__(self) -> None:
        self.source, self.destination = GlooTransport(), GlooTransport()
        self.lanes = ThreadPoolExecutor(max_workers=40)
        self.communicators: list[Any] = []

    def extract(self, obj_id: str, tensors: list[Any]) -> Any:
        return pickle.loads(pickle.dumps(self.source.extract_tensor_transport_metadata(obj_id, tensors)))

    def communicator(self) -> Any:
        self.communicators.append(pickle.loads(pickle.dumps(self.source.get_communicator_metadata(None, None, "NAME"))))
        return self.communicators[-1]

    def send(self, tensors: list[Any], metadata: Any, communicator: Any) -> Future[None]:
        return self.lanes.submit(self.source.send_multiple_tensors, tensors, metadata, communicator)

    def recv(self, metadata: Any, communicator: Any, buffers: Any = None) -> Future[list[Any]]:
        return self.lanes.submit(self.destination.recv_multiple_tensors, "obj", metadata, communicator, buffers)

    def transfer(self, tensors: list[Any], buffers: list[Any] | None = None) -> list[Any]:
        metadata, communicator = self.extract("obj", tensors), self.communicator()
        received = self.recv(metadata, communicator, buffers)
        self.send(tensors, metadata, communicator).result(SOON)
        return received.result(SOON)

    def abort(self, communicator: Any) -> None:
        for transport in (self.source, self.destination):
            transport.abort_transport("obj", communicator)

    def close(self) -> None:
        """End what a failed test has left in flight."""
        for communicator in self.communicators:
            self.abort(communicator)
        self.lanes.shutdown()
        del self.source, self.destination


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


def in_groups(transport: GlooTransport) -> int:
    """How many sends and receives are where only gloo's messages count."""
    with transport._changed:
        return sum(isinstance(place, PairGroup) for place in transport._under_way.values())


def resources() -> tuple[int, int]:
    """Open files, and threads of gloo's own, which do not show in Python."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return len(os.listdir("/proc/self/fd")), sum(name.startswith("gloo") for name in names)


def same(received: list[Any], sent: list[Any]) -> bool:
    return len(received) == len(sent) and all(
        got.shape == had.shape and got.dtype == had.dtype and bytes(_raw(got)) == bytes(_raw(had))
        for got, had in zip(received, sent, strict=True)
    )


def _raw(tensor: Any) -> Any:
    plain = torch.as_tensor(tensor).detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy() if plain.numel() else b""


def test_every_dtype_and_layout_arrives_alone_or_with_others(pair: Pair) -> None:
    base = torch.randn(300, 200)
    tensors = [torch.randint(0, 2, (3, 16), dtype=torch.uint8).view(dtype) for dtype in GLOO_CANNOT]
    tensors += [base, base.t(), base[:, ::2], base[1], base[:0], torch.tensor(7), torch.ones(1).expand(4)]
    tensors += [torch.randn(5, dtype=torch.complex64).conj(), torch.ones(3, requires_grad=True), base]
    assert same(pair.transfer(tensors), tensors)
    for tensor in tensors[-10:]:
        assert same(pair.transfer([tensor]), [tensor])
    assert pair.transfer([]) == []


def test_many_tensors_and_arrays(pair: Pair) -> None:
    many = [torch.full((i % 7,), i) for i in range(10_000)]
    assert same(pair.transfer(many), many)
    frozen = np.arange(20_000)
    frozen.flags.writeable = False
    arrays = [np.arange(12).reshape(3, 4).T, np.array(3.0), np.empty((0, 2), np.int8), frozen, np.arange(30_000)]
    for got, sent in zip(pair.transfer(arrays), arrays, strict=True):
        assert got.dtype == sent.dtype and got.flags.writeable and np.array_equal(got, sent)


def test_target_buffers_are_filled_or_refused(pair: Pair) -> None:
    tensors = [torch.arange(6.0).reshape(2, 3), torch.arange(50_000)]
    arena = torch.full((4, 6), -1.0)
    buffers = [arena[1:2].view(-1).view(2, 3), torch.zeros(50_000, dtype=torch.int64)]
    for _ in range(2):
        assert all(got is buffer for got, buffer in zip(pair.transfer(tensors, buffers), buffers, strict=True))
        assert same(buffers, tensors) and (arena[[0, 2, 3]] == -1).all()
    with pytest.raises(ValueError):
        pair.recv(pair.extract("obj", tensors), pair.communicator(), buffers[::-1]).result(SOON)


def test_transfers_of_one_pair_in_any_order_and_both_directions(pair: Pair) -> None:
    other = Pair()
    other.source, other.destination = pair.destination, pair.source
    work = []
    for way in (pair, other):
        for number in range(12):
            tensors = [torch.full((1000 * number,), number), torch.arange(number)]
            work.append((way, tensors, way.extract("obj", tensors), way.communicator()))
    order = random.Random(7).sample(work, len(work))
    received = [way.recv(metadata, communicator) for way, _, metadata, communicator in work]
    sent = [way.send(tensors, metadata, communicator) for way, tensors, metadata, communicator in order]
    for future, (_, tensors, _, _) in zip(received, work, strict=True):
        assert same(future.result(SOON), tensors)
    for future in sent:
        future.result(SOON)
    other.close()


@pytest.mark.parametrize("before", [False, True], ids=["first transfer", "later transfer"])
@pytest.mark.parametrize("half", ["recv", "send"])
def test_an_abort_ends_a_half_that_waits_for_the_other(pair: Pair, half: str, before: bool) -> None:
    """Where it asks for a group, and where it waits in one."""
    tensors = [torch.arange(100_000)]
    if before:
        pair.transfer(tensors)
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    side = pair.source if half == "send" else pair.destination
    blocked: Future[Any] = (
        pair.send(tensors, metadata, communicator) if half == "send" else pair.recv(metadata, communicator)
    )
    until(lambda: in_groups(side) == 1 if before else len(side._building) == 1)
    side.abort_transport("obj", communicator)
    side.abort_transport("obj", communicator)
    with pytest.raises(ConnectionAbortedError, match="aborted"):
        blocked.result(5)
    assert same(pair.transfer(tensors), tensors)


def test_an_abort_in_mid_transfer_ends_both_halves_and_writes_nothing_later(pair: Pair) -> None:
    tensors = [torch.ones(BIG, dtype=torch.uint8)]
    buffers = [torch.zeros(BIG, dtype=torch.uint8)]
    for side in ("source", "destination"):
        metadata, communicator = pair.extract("obj", tensors), pair.communicator()
        received = pair.recv(metadata, communicator, buffers)
        sent = pair.send(tensors, metadata, communicator)
        until(lambda: bool(buffers[0][0]))
        getattr(pair, side).abort_transport("obj", communicator)
        half = received if side == "destination" else sent
        assert half.exception(SOON) is None or isinstance(half.exception(), ConnectionAbortedError)
        pair.abort(communicator)
        received.exception(SOON)
        sent.exception(SOON)
        buffers[0].zero_()
        assert same(pair.transfer([torch.arange(10)]), [torch.arange(10)])
        assert not buffers[0].any()


def test_a_transfer_starts_over_when_another_ones_abort_takes_its_group(pair: Pair) -> None:
    """The source is still in an earlier transfer, which the destination has given up."""
    tensors = [torch.arange(100_000)]
    pair.transfer(tensors)
    metadata, earlier, later = pair.extract("obj", tensors), pair.communicator(), pair.communicator()
    stuck = pair.send(tensors, metadata, earlier)
    received = pair.recv(metadata, later)
    until(lambda: in_groups(pair.source) == in_groups(pair.destination) == 1)
    (group,) = pair.source._groups.values()
    pair.abort(earlier)
    assert isinstance(stuck.exception(SOON), ConnectionAbortedError)
    pair.send(tensors, metadata, later).result(SOON)
    assert same(received.result(SOON), tensors)
    assert group not in pair.source._groups.values()


@pytest.mark.parametrize("rank", [SOURCE, DESTINATION])
def test_building_a_group_ends_in_time_though_the_other_side_gives_up_in_the_middle(rank: int) -> None:
    """Gloo's own wait for a connection cannot be aborted; A1 and A2 leave five seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        here, there = (Channel(_Socket(each.detach()), "pair") for each in (sock, server.accept()[0]))
    device, other = (dist.ProcessGroupGloo.create_device(hostname="127.0.0.1") for _ in range(2))

    class GivesUp(_Exchange):
        def get(self, key: str) -> bytes:
            raise RuntimeError("aborted")

    def give_up() -> None:
        options: Any = dist.ProcessGroupGloo._Options()  # pyright: ignore[reportAttributeAccessIssue]
        options._devices, options._timeout = [other], timedelta(seconds=1)
        there.say(b"") if rank == DESTINATION else there.hear()
        dist.ProcessGroupGloo(GivesUp(there), 1 - rank, 2, options)

    with ThreadPoolExecutor(1) as pool, closing(there):
        giving_up = pool.submit(give_up)
        began = time.monotonic()
        with suppress(GroupLost):  # or it has been built: who connects to whom depends on gloo's addresses
            PairGroup(here, rank, device)
        assert time.monotonic() - began < 5
        assert giving_up.exception(SOON) is not None


def test_an_abort_before_the_start_fails_that_transfer_only(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    pair.abort(communicator)
    for future in (pair.send(tensors, metadata, communicator), pair.recv(metadata, communicator)):
        with pytest.raises(ConnectionAbortedError):
            future.result(SOON)
    assert same(pair.transfer(tensors), tensors)


def test_foreign_and_garbled_metadata_are_an_error(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    good, communicator = pair.extract("obj", tensors), pair.communicator()
    stranger: Any = GlooTransport().extract_tensor_transport_metadata("obj", tensors)
    for bad in (
        TensorTransportMetadata(good.tensor_meta, "cpu"),
        replace(good, address=None),
        replace(good, address=("no-such-host", 80)),
        replace(good, address=("127.0.0.1", 1 << 20)),
        replace(good, address=stranger.address),
        replace(good, secret=b"another"),
        replace(good, secret=None),
        replace(good, tensor_meta=None),
        stranger,
    ):
        with pytest.raises((ValueError, ConnectionError)) as caught:
            pair.recv(bad, communicator).result(SOON)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    for bad in (stranger, replace(good, tensor_meta=good.tensor_meta * 2)):
        with pytest.raises(ValueError):
            pair.send(tensors, bad, communicator).result(SOON)
    assert same(pair.transfer(tensors), tensors)


def test_messages_of_other_sizes_never_meet(pair: Pair) -> None:
    """In gloo, they would end the process."""
    tensors = [torch.arange(100_000), torch.arange(100_000)]
    for meta in (tensors[:1], [torch.arange(50_000), torch.arange(150_000)]):
        pair.transfer(tensors)
        good, communicator = pair.extract("obj", tensors), pair.communicator()
        received = pair.recv(replace(good, tensor_meta=[(each.shape, each.dtype) for each in meta]), communicator)
        sent = pair.send(tensors, good, communicator)
        until(lambda: in_groups(pair.source) == in_groups(pair.destination) == 1)
        pair.abort(communicator)
        assert isinstance(received.exception(SOON), ConnectionError)
        assert isinstance(sent.exception(SOON), ConnectionError)


def test_other_process_groups_make_no_difference(pair: Pair) -> None:
    tensors = [torch.arange(10)]
    assert same(pair.transfer(tensors), tensors) and not dist.is_initialized()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # pyright: ignore[reportPrivateImportUsage]
    try:
        assert same(pair.transfer(tensors), tensors)
        dist.all_reduce(tensors[0])
    finally:
        dist.destroy_process_group()
    assert same(pair.transfer(tensors), tensors)


def test_only_so_many_groups_are_kept(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each is built again when it is needed."""
    monkeypatch.setattr(GlooTransport, "MOST_GROUPS", 2)
    tensors, destinations = [torch.arange(10)], [GlooTransport() for _ in range(4)]
    for _ in range(2):
        for number, pair.destination in enumerate(destinations):
            metadata, communicator = pair.extract("obj", tensors), pair.communicator()
            communicator.pair = str(number)
            received = pair.recv(metadata, communicator)
            pair.send(tensors, metadata, communicator).result(SOON)
            assert same(received.result(SOON), tensors)
    assert [name for _, name in pair.source._groups] == ["2", "3"]


def test_nothing_is_left_behind(pair: Pair) -> None:
    """Transfers, aborts with and without a group, and transports that are dropped."""

    def settled() -> bool:
        pair.source.garbage_collect("obj", pair.extract("obj", []), [])
        return not pair.source._arrived

    def cycle() -> None:
        tensors = [torch.arange(1000)]
        metadata, waiting, asking = pair.extract("obj", tensors), pair.communicator(), pair.communicator()
        assert same(pair.transfer(tensors), tensors)
        for communicator in (waiting, asking):
            blocked = pair.recv(metadata, communicator)
            until(lambda: in_groups(pair.destination) == 1 or len(pair.destination._building) == 1)
            pair.abort(communicator)
            assert isinstance(blocked.exception(SOON), ConnectionAbortedError)

    def back() -> bool:
        """No more than before; what other tests have left may go meanwhile."""
        return settled() and all(now <= was for now, was in zip(resources(), before, strict=True))

    cycle()
    until(settled)
    gc.collect()
    before = resources()
    for _ in range(20):
        cycle()
    until(back)
    assert not pair.source._under_way and not pair.destination._under_way
    for _ in range(5):
        short = Pair()
        short.transfer([torch.arange(10)])
        short.close()
    gc.collect()
    until(back)


def _child(pipe: Any) -> None:
    """A process with a transport, which does what it is told."""
    transport, tensors = GlooTransport(), [torch.ones(BIG, dtype=torch.uint8)]
    for method, *args in iter(pipe.recv, None):
        if method == "extract":
            pipe.send(transport.extract_tensor_transport_metadata("obj", tensors))
        elif method == "send":
            transport.send_multiple_tensors(tensors, *args)
        else:
            pipe.send(transport.recv_multiple_tensors("obj", *args)[0].shape)


def test_between_processes_and_when_one_dies_in_mid_transfer(pair: Pair) -> None:
    tensors = [torch.ones(BIG, dtype=torch.uint8)]
    buffers = [torch.zeros(BIG, dtype=torch.uint8)]
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs,), daemon=True)
    child.start()
    theirs.close()
    pipe.send(("extract",))
    metadata, communicator = pipe.recv(), pair.communicator()
    received = pair.recv(metadata, communicator, buffers)
    pipe.send(("send", metadata, communicator))
    assert same(received.result(SOON), tensors)

    mine, back = pair.extract("obj", tensors), pair.communicator()
    pipe.send(("recv", mine, back))
    pair.send(tensors, mine, back).result(SOON)
    assert pipe.recv() == tensors[0].shape

    buffers[0].zero_()
    communicator = pair.communicator()
    received = pair.recv(metadata, communicator, buffers)
    pipe.send(("send", metadata, communicator))
    until(lambda: bool(buffers[0][0]))
    child.kill()
    child.join(SOON)
    assert received.exception(SOON) is None or isinstance(received.exception(), ConnectionError)
    with pytest.raises(ConnectionError, match="cannot reach the source"):
        pair.recv(metadata, pair.communicator()).result(SOON)


EXIT = """
import threading, time, torch
from reference_transports.gloo import GlooTransport
source, destination, tensors = GlooTransport(), GlooTransport(), [torch.arange(1000)]
metadata = source.extract_tensor_transport_metadata("obj", tensors)
def start(method, *args):
    thread = threading.Thread(target=method, args=args, daemon=True)
    thread.start()
    return thread
for last in (False, True):
    transfer = source.get_communicator_metadata(None, None, "")
    receiving = start(destination.recv_multiple_tensors, "obj", metadata, transfer)
    if not last:
        start(source.send_multiple_tensors, tensors, metadata, transfer).join()
        receiving.join()
while not any(destination._under_way.values()):
    time.sleep(0.002)
"""


def test_a_process_can_exit_in_mid_transfer() -> None:
    done = subprocess.run([sys.executable, "-c", EXIT], cwd=ROOT, capture_output=True, text=True, timeout=SOON * 2)
    assert done.returncode == 0, done.stderr
