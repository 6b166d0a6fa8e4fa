"""What is special about the shared memory transport: segments that are mapped, viewed, and used again."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ray.experimental import CommunicatorMetadata

from reference_transports import _segments, shared_memory
from reference_transports.shared_memory import SharedMemoryTransport

pytestmark = pytest.mark.timeout(60)

COMMUNICATOR = CommunicatorMetadata()
LARGE = 1 << 20


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), _mapped()
    yield
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), _mapped()) == before


def _mapped() -> int:
    """How many segments this process has mapped, each as often as it does."""
    with open("/proc/self/maps") as maps:
        return sum("/dev/shm/" in line for line in maps)


def _held() -> int:
    """How many segments this process has open."""
    with os.scandir("/proc/self/fd") as entries:
        return sum(os.readlink(entry).startswith("/dev/shm/") for entry in entries if os.path.lexists(entry))


def _extract(source: SharedMemoryTransport, tensors: list[Any], obj_id: str = "object") -> Any:
    return pickle.loads(pickle.dumps(source.extract_tensor_transport_metadata(obj_id, tensors)))


def _receive(receiver: SharedMemoryTransport, metadata: Any, buffers: list[Any] | None = None) -> list[Any]:
    return receiver.recv_multiple_tensors("object", metadata, COMMUNICATOR, buffers)


def _bytes(value: int, size: int = LARGE) -> torch.Tensor:
    return torch.full((size,), value, dtype=torch.uint8)


def _of_any_dtype() -> list[Any]:
    kinds = [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64, torch.bool, torch.int64, torch.uint16]
    flat = torch.arange(LARGE).to(torch.uint8) % 2
    tensors = [flat.view(kind).view(4, -1) if kind is not torch.bool else flat.to(kind) for kind in kinds]
    scalars = [torch.tensor(3.5, dtype=torch.bfloat16), torch.tensor(7), torch.empty(0, 3, dtype=torch.bfloat16)]
    return [*tensors, *scalars, np.arange(5, dtype=">i2"), np.empty((0, 2)), tensors[0].t(), tensors[3].conj()]


def test_a_large_object_is_viewed_and_the_views_are_like_tensors_of_their_own() -> None:
    source, sent = SharedMemoryTransport(), _of_any_dtype()
    metadata = _extract(source, sent)
    before = _held()
    received = _receive(SharedMemoryTransport(), metadata)
    assert _held() == before and _mapped() >= 2
    for tensor, original in zip(received, sent, strict=True):
        assert tensor.shape == original.shape and tensor.dtype == original.dtype
        if isinstance(tensor, torch.Tensor):
            packed = original.resolve_conj().contiguous().view(-1)
            assert torch.equal(tensor.view(-1).view(torch.uint8), packed.view(torch.uint8))
            assert tensor.is_contiguous() and not tensor.is_conj()
            assert not tensor.data_ptr() % tensor.itemsize
            assert len(pickle.dumps(tensor)) < tensor.nbytes + 1000
        else:
            assert tensor.tobytes() == original.tobytes() and tensor.flags.writeable
    weight = received[0].requires_grad_()
    received[3].zero_()
    (weight * 2).sum().backward()
    assert weight.grad is not None and weight.grad.min() == 2


def test_what_one_receiver_writes_nobody_else_sees() -> None:
    source, receiver = SharedMemoryTransport(), SharedMemoryTransport()
    metadata = _extract(source, [_bytes(1)])
    (first,), (second,) = _receive(receiver, metadata), _receive(receiver, metadata)
    first.fill_(9)
    buffer = _bytes(0)
    _receive(receiver, metadata, [buffer])
    assert second.unique().tolist() == buffer.unique().tolist() == [1] and first.unique().tolist() == [9]


def test_a_segment_is_used_again_only_when_nobody_views_it_any_more() -> None:
    source, receiver = SharedMemoryTransport(), SharedMemoryTransport()
    first = _extract(source, [_bytes(1)])
    (view,) = _receive(receiver, first)
    source.garbage_collect("object", first, [])
    second = _extract(source, [_bytes(2)])
    assert second.fd != first.fd and view.unique().tolist() == [1]
    source.garbage_collect("object", second, [])
    assert _extract(source, [_bytes(3)], "third").fd == second.fd
    part = view[-1:]
    del view
    assert _extract(source, [_bytes(4)], "fourth").fd not in (first.fd, second.fd) and part.tolist() == [1]
    del part
    assert _extract(source, [_bytes(5)], "fifth").fd == first.fd
    assert source._segments.keys() == {"third", "fourth", "fifth"}


def test_views_outlive_their_source() -> None:
    source = SharedMemoryTransport()
    (view,) = _receive(SharedMemoryTransport(), _extract(source, [_bytes(1)]))
    del source
    gc.collect()
    assert _held() == 0 and view.unique().tolist() == [1]


_RECEIVER = """
import pickle, sys
from reference_transports.shared_memory import SharedMemoryTransport
received = SharedMemoryTransport().recv_multiple_tensors("object", pickle.load(sys.stdin.buffer), None)
print(received[0].unique().tolist(), flush=True)
sys.stdin.buffer.read()  # until killed
"""


def test_a_killed_receiver_lets_go() -> None:
    source = SharedMemoryTransport()
    metadata = _extract(source, [_bytes(1)])
    with subprocess.Popen(
        [sys.executable, "-c", _RECEIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdin and other.stdout
        try:
            pickle.dump(metadata, other.stdin)
            other.stdin.flush()
            assert other.stdout.readline() == b"[1]\n"
            source.garbage_collect("object", metadata, [])
            assert _extract(source, [_bytes(2)], "second").fd != metadata.fd
        finally:
            other.kill()
    assert _extract(source, [_bytes(3)], "third").fd == metadata.fd


def test_beyond_some_number_of_views_objects_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_MOST_VIEWS", 1)
    source, receiver = SharedMemoryTransport(), SharedMemoryTransport()
    metadata = _extract(source, [np.arange(LARGE)])
    (viewed,), (copied,) = _receive(receiver, metadata), _receive(receiver, metadata)
    assert copied.flags.owndata and not viewed.flags.owndata and (viewed == copied).all()


def test_a_source_keeps_a_bounded_number_of_idle_segments() -> None:
    source = SharedMemoryTransport()
    live = {f"object {i}": _extract(source, [torch.ones(i)], f"object {i}") for i in range(50)}
    assert _held() == 50
    for obj_id, metadata in live.items():
        source.garbage_collect(obj_id, metadata, [])
    assert _held() == _segments._MOST_IDLE
    del source
    assert _held() == 0


def test_a_receiver_keeps_a_bounded_number_of_segments_mapped() -> None:
    source, receiver = SharedMemoryTransport(), SharedMemoryTransport()
    for i in range(2 * _segments._MOST_MAPPED):
        metadata = _extract(source, [_bytes(i)], f"object {i}")
        assert _receive(receiver, metadata, [_bytes(0)])[0].unique().tolist() == [i]
    live = len(source._segments)
    assert _mapped() - live == _segments._MOST_MAPPED


def test_discarded_memory_is_given_back_though_a_receiver_has_it_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_segments, "_MOST_IDLE", 0)
    source, receiver = SharedMemoryTransport(), SharedMemoryTransport()
    metadata = _extract(source, [_bytes(1)])
    _receive(receiver, metadata, [_bytes(0)])
    witness = os.dup(metadata.fd)
    assert os.fstat(witness).st_blocks * 512 >= LARGE
    source.garbage_collect("object", metadata, [])
    assert os.fstat(witness).st_blocks == 0
    os.close(witness)


def test_a_segment_is_private_and_nameless() -> None:
    source = SharedMemoryTransport()
    state = os.fstat(_extract(source, [torch.ones(4)]).fd)
    assert state.st_mode & 0o777 == 0o600 and state.st_nlink == 0


@pytest.mark.parametrize("size", [4, LARGE])
def test_a_receiver_that_comes_after_the_free_gets_an_error_never_other_data(size: int) -> None:
    source, receiver = SharedMemoryTransport(), SharedMemoryTransport()
    stale = _extract(source, [_bytes(1, size)])
    buffer = _bytes(0, size)
    _receive(receiver, stale, [buffer.clone()])
    source.garbage_collect("object", stale, [])
    for _ in range(2):
        for buffers in ([buffer], None):
            with pytest.raises(RuntimeError, match="object object is gone"):
                _receive(receiver, stale, buffers)
        assert buffer.unique().tolist() == [0]
        assert _extract(source, [_bytes(2, size)], "second").fd == stale.fd


def test_full_shared_memory_is_an_error_that_leaves_nothing() -> None:
    source = SharedMemoryTransport()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))  # the kernel refuses larger files, as if it were full
    try:
        with pytest.raises(OSError, match=r"cannot put \d+ bytes into /dev/shm"):
            source.extract_tensor_transport_metadata("object", [_bytes(1, 2 << 20)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _held() == 0
    assert _receive(SharedMemoryTransport(), _extract(source, [_bytes(1)]))[0].unique().tolist() == [1]


def test_idle_segments_make_room_when_shared_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SharedMemoryTransport()
    source.garbage_collect("object", _extract(source, [_bytes(1)]), [])
    allocate = os.posix_fallocate

    def full(fd: int, offset: int, size: int) -> None:
        if _held() > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    _extract(source, [_bytes(2, 2 * LARGE)])
    assert _held() == 1
    with pytest.raises(OSError, match="No space left"):
        _extract(source, [_bytes(3)], "third")
    assert _held() == 1
