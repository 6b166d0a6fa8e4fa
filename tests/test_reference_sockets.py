"""The two socket transports: two instances in one process, on threads, and once two processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from ray.experimental import TensorTransportManager, TensorTransportMetadata

from reference_transports import _wire
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings(
        "ignore:ComplexHalf support", "ignore:torch.quantize_per", "ignore:The PyTorch API of nested"
    ),
]
CLASSES = (TcpTransport, SocketPullTransport)
SOON = 10.0
"""Seconds within which whatever should happen has happened, on a machine that is busy with other things."""


class Pair:
    """A source and a destination, and an owner's part in between."""

    def __init__(self, cls: type[TensorTransportManager]) -> None:
        self.source: Any = cls()
        self.destination: Any = cls()
        self.lanes = ThreadPoolExecutor(max_workers=100)
        self.communicators: list[Any] = []

    def extract(self, obj_id: str, tensors: list[Any]) -> TensorTransportMetadata:
        return pickle.loads(pickle.dumps(self.source.extract_tensor_transport_metadata(obj_id, tensors)))

    def communicator(self) -> Any:
        self.communicators.append(pickle.loads(pickle.dumps(self.source.get_communicator_metadata(None, None, "NAME"))))
        return self.communicators[-1]

    def send(self, tensors: list[Any], metadata: Any, communicator: Any) -> Future[None]:
        return self.lanes.submit(self.source.send_multiple_tensors, tensors, metadata, communicator)

    def recv(self, obj_id: str, metadata: Any, communicator: Any, buffers: Any = None) -> Future[list[Any]]:
        return self.lanes.submit(self.destination.recv_multiple_tensors, obj_id, metadata, communicator, buffers)

    def transfer(
        self, obj_id: str, tensors: list[Any], buffers: list[Any] | None = None, metadata: Any = None
    ) -> list[Any]:
        metadata = metadata or self.extract(obj_id, tensors)
        communicator = self.communicator()
        received = self.recv(obj_id, metadata, communicator, buffers)
        if not self.source.is_one_sided():
            sent = self.send(tensors, metadata, communicator)
            if received.exception(SOON):
                self.source.abort_transport(obj_id, communicator)
                sent.exception(SOON)
            else:
                sent.result(SOON)
        return received.result(SOON)

    def close(self) -> None:
        """End what a failed test has left in flight."""
        for transport in (self.source, self.destination):
            for communicator in self.communicators:
                transport.abort_transport("", communicator)
        self.lanes.shutdown()
        self.source = self.destination = None

    def free(self, obj_id: str, metadata: Any = None, tensors: Any = ()) -> None:
        self.source.garbage_collect(obj_id, metadata, list(tensors))


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    gc.collect()
    until(lambda: not threads())  # those of the test before
    made = Pair(request.param)
    yield made
    made.close()


both = pytest.mark.parametrize("pair", CLASSES, indirect=True)
tcp = pytest.mark.parametrize("pair", [TcpTransport], indirect=True)
pull = pytest.mark.parametrize("pair", [SocketPullTransport], indirect=True)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


@contextmanager
def paused(transport: SocketPullTransport) -> Iterator[None]:
    """The transport serves nobody."""
    with transport._lock:
        yield


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


_EARLIER: set[threading.Thread] = set()
"""Threads of other test files: transports that those left to the garbage collector."""


@pytest.fixture(scope="module", autouse=True)
def _know_earlier_threads() -> None:
    _EARLIER.update(threading.enumerate())


def threads() -> list[str]:
    running = set(threading.enumerate()) - _EARLIER
    return [thread.name for thread in running if thread.name.startswith("rdt-socket")]


def raw(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
]  # fmt: skip


@both
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


@both
def test_no_tensors_many_tensors_and_arrays(pair: Pair) -> None:
    assert pair.transfer("none", []) == []
    many = [torch.full((i % 7,), i) for i in range(10_000)]
    assert all(torch.equal(a, b) for a, b in zip(pair.transfer("many", many), many, strict=True))
    arrays = [np.arange(12).reshape(3, 4).T, np.array(3.0), np.empty((0, 2), np.int8), np.array([True])]
    for got, sent in zip(pair.transfer("arrays", arrays), arrays, strict=True):
        assert got.dtype == sent.dtype and got.flags.writeable and np.array_equal(got, sent)


@both
def test_metadata_are_small_and_the_same_when_extracted_again(pair: Pair) -> None:
    tensors = [torch.zeros(i % 5, 3) for i in range(1000)]
    metadata = pair.extract("obj", tensors)
    assert metadata == pair.extract("obj", tensors)
    assert len(pickle.dumps(metadata)) < 100_000
    assert (metadata.tensor_meta[4], metadata.tensor_device) == ((torch.Size([4, 3]), torch.float32), "cpu")
    assert metadata.secret.hex() not in repr(metadata) and repr(metadata.secret) not in repr(metadata)  # type: ignore[attr-defined]
    assert pair.extract("none", []).tensor_device is None


@both
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


@both
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


@both
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


@both
def test_a_stranger_gets_nothing_and_disturbs_nobody(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata: Any = pair.extract("obj", tensors)
    before = files()
    with socket.create_connection(metadata.address) as silent, socket.create_connection(metadata.address) as rude:
        rude.sendall(b"GET / HTTP/1.1\r\n" * 5000)
        rude.settimeout(SOON)
        with pytest.raises(ConnectionResetError):
            while rude.recv(1):
                pass
            raise ConnectionResetError  # closed politely
        assert torch.equal(pair.transfer("obj", tensors)[0], tensors[0])
        assert silent.fileno() >= 0
    until(lambda: files() == before)


@both
def test_an_impostor_is_found_out(pair: Pair) -> None:
    good: Any = pair.extract("obj", [torch.arange(8)])
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def answer() -> None:
            with impostor.accept()[0] as sock:
                sock.recv(1000)
                sock.sendall(bytes(32 + 8 + 64))

        answering = pair.lanes.submit(answer)
        with pytest.raises(ConnectionError, match="secret"):
            pair.recv("obj", replace(good, address=impostor.getsockname()), pair.communicator()).result(SOON)
        answering.result(SOON)


@both
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


@both
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


@both
def test_late_unknown_and_repeated_aborts_change_nothing(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata = pair.extract("obj", tensors)
    for _ in range(300):
        pair.destination.abort_transport("obj", pair.communicator())
        pair.source.abort_transport("obj", pair.communicator())
    assert len(getattr(pair.destination, "_aborted", ())) <= 256
    assert torch.equal(pair.transfer("obj", tensors, metadata=metadata)[0], tensors[0])


@both
def test_an_abort_ends_the_blocked_receiver_and_nobody_else(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata = pair.extract("obj", tensors)
    buffer = torch.zeros(8, dtype=torch.int64)
    communicator = pair.communicator()
    bystander = Pair(type(pair.source))
    with paused(pair.source) if pair.source.is_one_sided() else nullcontext():
        blocked = pair.recv("obj", metadata, communicator, [buffer])
        until(lambda: "rdt-socket-server" in threads() or bool(getattr(pair.source, "_arrived", ())))
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


@tcp
def test_an_abort_or_a_dead_receiver_ends_a_send(pair: Pair) -> None:
    tensors = [torch.zeros(64 << 20, dtype=torch.uint8)]
    metadata: Any = pair.extract("obj", tensors)
    waiting, stuck, left = (pair.communicator() for _ in range(3))
    sends = {c.transfer_id: pair.send(tensors, metadata, c) for c in (waiting, stuck, left)}
    idle = [_wire.ReceiverEnd(communicator.transfer_id, metadata) for communicator in (stuck, left)]
    for end in idle:
        end._connect()
        _wire._receive_exactly(end._sock, 1000)  # and no more
    idle[1].close()
    with pytest.raises(ConnectionError, match="the receiver is gone"):
        sends[left.transfer_id].result(SOON)
    for communicator in (waiting, stuck):
        assert not sends[communicator.transfer_id].done()
        pair.source.abort_transport("obj", communicator)
        with pytest.raises(ConnectionAbortedError):
            sends[communicator.transfer_id].result(1)
    assert torch.equal(pair.transfer("obj", tensors, metadata=metadata)[0], tensors[0])


@tcp
def test_an_abort_before_the_start_fails_that_transfer_only(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    for transport in (pair.source, pair.destination):
        transport.abort_transport("obj", communicator)
    for future in (pair.send(tensors, metadata, communicator), pair.recv("obj", metadata, communicator)):
        with pytest.raises(ConnectionAbortedError):
            future.result(SOON)
    assert torch.equal(pair.transfer("obj", tensors, metadata=metadata)[0], tensors[0])


@tcp
def test_a_receiver_that_left_before_the_send_is_forgotten(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    before = files()
    blocked = pair.recv("obj", metadata, communicator)
    until(lambda: bool(pair.source._arrived))
    pair.destination.abort_transport("obj", communicator)
    assert isinstance(blocked.exception(SOON), ConnectionAbortedError)
    pair.free("obj", metadata, tensors)
    assert not pair.source._arrived and files() == before


@both
def test_connecting_can_be_aborted(pair: Pair) -> None:
    """A full backlog never answers: the receiver waits in connect."""
    metadata: Any = pair.extract("obj", [torch.arange(8)])
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        knocking = [socket.socket() for _ in range(4)]
        for sock in knocking:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        communicator = pair.communicator()
        blocked = pair.recv("obj", replace(metadata, address=full.getsockname()), communicator)
        with pytest.raises(TimeoutError):
            blocked.result(0.2)
        pair.destination.abort_transport("obj", communicator)
        assert isinstance(blocked.exception(1), ConnectionAbortedError)
        for sock in knocking:
            sock.close()


@pull
def test_waiting_keeps_its_timeout_and_can_be_repeated(pair: Pair) -> None:
    tensors = [torch.arange(1000)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    with paused(pair.source):
        requests = [pair.destination.fetch_multiple_tensors("obj", metadata, communicator) for _ in range(64)]
        for timeout in (0, 0.05):
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                pair.destination.wait_fetch_complete(requests[0], timeout=timeout)
            assert timeout <= time.monotonic() - started < timeout + 1
    for timeout, request in zip([-1, SOON, *[float("inf")] * 62], reversed(requests), strict=True):
        received = pair.destination.wait_fetch_complete(request, timeout=timeout)
        assert torch.equal(received[0], tensors[0])
        again = pair.destination.wait_fetch_complete(request, timeout=0)
        assert len(again) == 1 and again[0] is received[0]
        assert request.obj_id == "obj"


@pull
def test_a_dropped_request_leaves_its_buffers_alone(pair: Pair) -> None:
    tensors = [torch.ones(1000)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    buffers = [torch.zeros(1000)]
    before = files()
    with paused(pair.source):
        request = pair.destination.fetch_multiple_tensors("obj", metadata, communicator, buffers)
        until(lambda: "rdt-socket-server" in threads())
        del request
        until(lambda: "rdt-socket-fetch" not in threads())
    until(lambda: files() == before and threads() == ["rdt-socket-listener"])
    assert not buffers[0].any()
    assert not list(pair.destination._fetching)


@pull
def test_a_dropped_request_stops_in_mid_transfer(pair: Pair) -> None:
    tensors = [torch.ones(256 << 20, dtype=torch.uint8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    buffers = [torch.zeros(256 << 20, dtype=torch.uint8)]
    request = pair.destination.fetch_multiple_tensors("obj", metadata, communicator, buffers)
    until(lambda: bool(buffers[0][0]))
    del request
    buffers[0].zero_()
    until(lambda: threads() == ["rdt-socket-listener"])
    assert not buffers[0].any()


@pull
def test_freeing_during_a_fetch_still_delivers_and_afterwards_is_an_error(pair: Pair) -> None:
    tensors = [torch.arange(8 << 20)]
    metadata: Any = pair.extract("obj", tensors)
    expected = raw(tensors[0])
    slow = _wire.ReceiverEnd("obj", metadata)
    slow._connect()
    assert _wire._receive_exactly(slow._sock, 8) == len(expected).to_bytes(8, "big")
    pair.free("obj", metadata, tensors)
    tensors.clear()
    gc.collect()
    assert _wire._receive_exactly(slow._sock, len(expected)) == expected
    slow.close()
    with pytest.raises(ConnectionError, match="does not hold"):
        pair.recv("obj", metadata, pair.communicator()).result(SOON)


@pull
def test_a_failed_fetch_says_so_to_every_wait(pair: Pair) -> None:
    metadata, communicator = pair.extract("obj", [torch.arange(3)]), pair.communicator()
    good = pair.destination.fetch_multiple_tensors("obj", metadata, communicator)
    bad = pair.destination.fetch_multiple_tensors("unknown", metadata, communicator)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="does not hold"):
            pair.destination.wait_fetch_complete(bad, timeout=SOON)
    assert torch.equal(pair.destination.wait_fetch_complete(good, timeout=SOON)[0], torch.arange(3))


@both
def test_nothing_is_left_behind(pair: Pair) -> None:
    """Cycles of transfer, abort and free, transports that are dropped; and no port is kept busy in TIME_WAIT."""
    tensors = [torch.arange(100)]
    pair.transfer("warm", tensors)
    pair.free("warm")
    until(lambda: threads() == ["rdt-socket-listener"])
    before = files()
    metadata: Any = None
    for number in range(200):
        metadata = pair.extract(f"obj{number}", tensors)
        pair.transfer(f"obj{number}", tensors, metadata=metadata)
        for transport in (pair.source, pair.destination):
            transport.abort_transport(f"obj{number}", pair.communicator())
        pair.free(f"obj{number}", metadata, tensors)
    until(lambda: files() == before and threads() == ["rdt-socket-listener"])
    ended = [c for c in psutil.net_connections("tcp4") if c.status == psutil.CONN_TIME_WAIT]
    assert metadata.address not in [tuple(end) for connection in ended for end in (connection.laddr, connection.raddr)]
    for _ in range(20):
        short = Pair(type(pair.source))
        short.transfer("obj", tensors)
        short.close()
    until(lambda: files() == before and threads() == ["rdt-socket-listener"])


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
