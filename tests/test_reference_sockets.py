"""What the two socket transports have in common: two instances in one process, on threads, and once two processes."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from ray.experimental import TensorTransportMetadata
from socket_tools import SOON, Pair, files, pair_of, paused, raw, threads, until

from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings(
        "ignore:ComplexHalf support", "ignore:torch.quantize_per", "ignore:The PyTorch API of nested"
    ),
]
CLASSES = (TcpTransport, SocketPullTransport)


@pytest.fixture(params=CLASSES)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param) as made:
        yield made


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
]  # fmt: skip


def test_every_dtype_and_layout_arrives(pair: Pair) -> None:
    base = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
    complex_ = torch.randn(5, dtype=torch.complex64)
    tensors = [torch.randint(0, 2, (3, 16), dtype=torch.uint8).view(dtype) for dtype in DTYPES]
    tensors += [base, base.transpose(0, 2), base[:, ::2], base[1], base[:0], torch.tensor(7), torch.tensor(True)]
    tensors += [torch.ones(1).expand(4), complex_.conj(), complex_.conj().imag, torch.ones(3, requires_grad=True)]
    tensors += [torch.empty(0, 3, dtype=torch.int16), torch.nn.Parameter(torch.ones(2)), base]
    before = [(raw(t), t.stride(), t._version) for t in tensors]
    received = pair.transfer("obj", tensors)
    assert before == [(raw(t), t.stride(), t._version) for t in tensors]
    assert len(received) == len(tensors)
    for got, sent in zip(received, tensors, strict=True):
        assert (got.shape, got.dtype, got.device) == (sent.shape, sent.dtype, sent.device)
        assert raw(got) == raw(sent)
        assert got.is_contiguous() and not got.requires_grad
    assert len({t.untyped_storage().data_ptr() for t in received if t.numel()}) == sum(t.numel() > 0 for t in received)


def test_no_tensors_many_tensors_and_arrays(pair: Pair) -> None:
    assert pair.transfer("none", []) == []
    many = [torch.full((i % 7,), i) for i in range(10_000)]
    assert all(torch.equal(a, b) for a, b in zip(pair.transfer("many", many), many, strict=True))
    arrays = [np.arange(12).reshape(3, 4).T, np.array(3.0), np.empty((0, 2), np.int8), np.array([True])]
    for got, sent in zip(pair.transfer("arrays", arrays), arrays, strict=True):
        assert got.dtype == sent.dtype and got.flags.writeable and np.array_equal(got, sent)


def test_metadata_are_small_and_the_same_when_extracted_again(pair: Pair) -> None:
    tensors = [torch.zeros(i % 5, 3) for i in range(1000)]
    metadata = pair.extract("obj", tensors)
    assert metadata == pair.extract("obj", tensors)
    assert len(pickle.dumps(metadata)) < 100_000
    assert (metadata.tensor_meta[4], metadata.tensor_device) == ((torch.Size([4, 3]), torch.float32), "cpu")
    assert metadata.secret.hex() not in repr(metadata) and repr(metadata.secret) not in repr(metadata)  # type: ignore[attr-defined]
    assert pair.extract("none", []).tensor_device is None


def test_what_cannot_be_carried_is_refused_and_leaves_nothing(pair: Pair) -> None:
    fine = torch.ones(2)
    before = files()
    for bad in (
        torch.ones(2, device="meta"),
        torch.eye(2).to_sparse(),
        torch.quantize_per_tensor(fine, 0.1, 0, torch.qint8),
        torch.nested.nested_tensor([fine, fine]),
    ):
        for tensors in ([bad], [fine, bad]):
            with pytest.raises(ValueError):
                pair.extract("obj", tensors)
    assert files() == before and not threads() and not getattr(pair.source, "_objects", None)


def test_target_buffers_are_filled_or_refused(pair: Pair) -> None:
    tensors = [torch.arange(6.0).reshape(2, 3), torch.tensor([True, False])]
    arena = torch.full((4, 6), -1.0)
    buffers = [arena[1:2].view(-1).view(2, 3), torch.zeros(2, dtype=torch.bool)]
    for _ in range(2):
        received = pair.transfer("obj", tensors, buffers)
        assert all(got is buffer for got, buffer in zip(received, buffers, strict=True))
        assert all(torch.equal(got, sent) for got, sent in zip(received, tensors, strict=True))
        assert (arena[[0, 2, 3]] == -1).all()
    arena.fill_(-1)
    for wrong in (
        buffers[:1],
        buffers[::-1],
        [buffers[0].view(3, 2), buffers[1]],
        [buffers[0].int(), buffers[1]],
        [arena[:2, ::2], buffers[1]],
        [torch.empty(2, 3, device="meta"), buffers[1]],
    ):
        with pytest.raises(ValueError):
            pair.transfer("obj", tensors, wrong)
    assert (arena == -1).all()


def test_garbled_metadata_are_an_error(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    good: Any = pair.extract("obj", tensors)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed_port = gone.getsockname()
    buffer = torch.full((8,), 5)
    for bad in (
        TensorTransportMetadata(good.tensor_meta, "cpu"),
        replace(good, secret=b"wrong"),
        replace(good, secret="wrong"),
        replace(good, address=closed_port),
        replace(good, address=("no-such-host", 80)),
        replace(good, address=("127.0.0.1", 1 << 20)),
        replace(good, address=None),
        replace(good, tensor_meta=good.tensor_meta * 2),
        replace(good, tensor_meta=[]),
        replace(good, tensor_meta=[("shape", "dtype")]),
        replace(good, tensor_meta=None),
    ):
        with pytest.raises((ValueError, ConnectionError)) as caught:
            pair.transfer("obj", tensors, [buffer] if bad.tensor_meta == good.tensor_meta else None, bad)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert (buffer == 5).all()
    assert torch.equal(pair.transfer("obj", tensors)[0], tensors[0])


def test_many_transfers_in_any_order_and_both_directions(pair: Pair) -> None:
    """Also several transfers of one object at once, and several objects with one tensor."""
    other = Pair(type(pair.source))
    other.source, other.destination = pair.destination, pair.source
    shuffle = random.Random(7).shuffle
    work = []
    for way in (pair, other):
        for number in range(20):
            tensors = [torch.full((1000 * number,), number), torch.arange(number)]
            metadata = way.extract(f"obj{number}", tensors)
            work += [(way, f"obj{number}", tensors, metadata, way.communicator()) for _ in range(2)]
    shuffle(work)
    received = [way.lanes.submit(way.destination.recv_multiple_tensors, i, m, c) for way, i, _, m, c in work]
    if not pair.source.is_one_sided():
        order = list(work)
        shuffle(order)
        for way, _, tensors, metadata, communicator in order:
            way.send(tensors, metadata, communicator)
    for future, (_, _, tensors, _, _) in zip(received, work, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(future.result(SOON), tensors, strict=True))
    other.close()


def test_freeing_lets_go_of_the_tensors(pair: Pair) -> None:
    tensors = [torch.ones(10), torch.ones(4, 4).t()]
    metadata = pair.extract("obj", tensors)
    assert metadata == pair.extract("obj", tensors)
    received = pair.transfer("obj", tensors, metadata=metadata)
    watched = [weakref.ref(t) for t in tensors]
    pair.free("obj", metadata, tensors)
    pair.free("obj", metadata, tensors)
    pair.free("unknown", metadata, [])
    tensors.clear()
    until(lambda: not any(ref() is not None for ref in watched))
    assert torch.equal(received[0], torch.ones(10))


def test_late_unknown_and_repeated_aborts_change_nothing(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata = pair.extract("obj", tensors)
    for _ in range(300):
        pair.destination.abort_transport("obj", pair.communicator())
        pair.source.abort_transport("obj", pair.communicator())
    assert len(getattr(pair.destination, "_aborted", ())) <= 256
    assert torch.equal(pair.transfer("obj", tensors, metadata=metadata)[0], tensors[0])


def test_an_abort_ends_the_blocked_receiver_and_nobody_else(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata = pair.extract("obj", tensors)
    buffer = torch.zeros(8, dtype=torch.int64)
    communicator = pair.communicator()
    bystander = Pair(type(pair.source))
    with paused(pair.source) if pair.source.is_one_sided() else nullcontext():
        blocked = pair.recv("obj", metadata, communicator, [buffer])
        until(lambda: "rdt-socket-server" in threads() or bool(getattr(pair.source, "_asking", ())))
        bystander.destination = pair.destination  # and another source
        assert torch.equal(bystander.transfer("other", tensors)[0], tensors[0])
        assert not blocked.done()
        started = time.monotonic()
        for _ in range(3):
            pair.destination.abort_transport("obj", communicator)
        assert time.monotonic() - started < 1
        with pytest.raises(ConnectionAbortedError, match="aborted"):
            blocked.result(1)
    if not pair.source.is_one_sided():
        pair.source.abort_transport("obj", communicator)
    bystander.close()
    assert not buffer.any()
    assert torch.equal(pair.transfer("obj", tensors, [buffer], metadata)[0], tensors[0])


def test_nothing_is_left_behind(pair: Pair) -> None:
    """Cycles of transfer, abort and free, transports that are dropped; and no port is kept busy in TIME_WAIT."""
    tensors = [torch.arange(100)]
    pair.transfer("warm", tensors)
    pair.free("warm")
    resting = ["rdt-socket-listener", "rdt-socket-server"]
    until(lambda: threads() == resting)
    before = files()
    metadata: Any = None
    for number in range(200):
        metadata = pair.extract(f"obj{number}", tensors)
        pair.transfer(f"obj{number}", tensors, metadata=metadata)
        for transport in (pair.source, pair.destination):
            transport.abort_transport(f"obj{number}", pair.communicator())
        pair.free(f"obj{number}", metadata, tensors)
    until(lambda: files() == before and threads() == resting)
    ended = [c for c in psutil.net_connections("tcp4") if c.status == psutil.CONN_TIME_WAIT]
    assert metadata.address not in [tuple(end) for connection in ended for end in (connection.laddr, connection.raddr)]
    for _ in range(20):
        short = Pair(type(pair.source))
        short.transfer("obj", tensors)
        short.close()
    until(lambda: files() == before and threads() == resting)


def _child(pipe: Any) -> None:
    """A process with one transport of each kind, which does what it is told."""
    transports: Any = {cls: cls() for cls in CLASSES}
    tensors = [torch.arange(4 << 20)]
    while True:
        cls, method, *args = pipe.recv()
        if method == "extract":
            pipe.send(transports[cls].extract_tensor_transport_metadata("obj", tensors))
        elif method == "send":
            transports[cls].send_multiple_tensors(tensors, *args)
        else:
            pipe.send(transports[cls].recv_multiple_tensors("obj", *args)[0].sum())


def test_between_processes_and_when_one_dies() -> None:
    tensors = [torch.arange(4 << 20)]
    pairs = [Pair(cls) for cls in CLASSES]
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs,), daemon=True)
    child.start()
    theirs.close()
    waiting = []
    for cls, pair in zip(CLASSES, pairs, strict=True):
        pipe.send((cls, "extract"))
        metadata, communicator = pipe.recv(), pair.communicator()
        received = pair.recv("obj", metadata, communicator)
        if not cls.is_one_sided():
            pipe.send((cls, "send", metadata, communicator))
        assert torch.equal(received.result(SOON)[0], tensors[0])

        mine, communicator = pair.extract("obj", tensors), pair.communicator()
        pipe.send((cls, "recv", mine, communicator))
        if not cls.is_one_sided():
            pair.send(tensors, mine, communicator).result(SOON)
        assert pipe.recv() == tensors[0].sum()

        # A receiver that waits for the other process, and a fetch that starts when that is no more.
        waiting.append((pair, metadata, pair.recv("obj", metadata, pair.communicator())))
    child.kill()
    child.join(SOON)
    for pair, metadata, received in waiting:
        if not pair.source.is_one_sided():
            with pytest.raises(ConnectionError):
                received.result(SOON)
        with pytest.raises(ConnectionError, match="cannot reach the source"):
            pair.recv("obj", metadata, pair.communicator()).result(SOON)
        pair.close()
    pipe.close()
