"""What is particular to reading the source's memory; the rest is in ``test_reference_one_sided``."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import pickle
import subprocess
import sys
from array import array
from typing import Any

import numpy as np
import pytest
import torch
from ray.experimental import CommunicatorMetadata

from reference_transports import cross_memory
from reference_transports.cross_memory import CrossMemoryMetadata, CrossMemoryTransport

pytestmark = pytest.mark.timeout(60)


def _extract(source: CrossMemoryTransport, tensors: list[Any], obj_id: str = "object") -> CrossMemoryMetadata:
    """The metadata as a receiver gets it."""
    return pickle.loads(pickle.dumps(source.extract_tensor_transport_metadata(obj_id, tensors)))


def _receive(metadata: CrossMemoryMetadata, buffers: list[Any] | None = None) -> list[Any]:
    return CrossMemoryTransport().recv_multiple_tensors("object", metadata, CommunicatorMetadata(), buffers)


def test_what_arrives_is_what_is_there_when_it_is_read() -> None:
    source, tensor, array = CrossMemoryTransport(), torch.arange(4), np.arange(3)
    metadata = _extract(source, [tensor, array])
    tensor += 10
    array += 20
    assert [received.tolist() for received in _receive(metadata)] == [[10, 11, 12, 13], [20, 21, 22]]


def test_what_does_not_lie_in_one_piece_is_packed_at_extract() -> None:
    source, tensor = CrossMemoryTransport(), torch.arange(6).view(2, 3)
    metadata = _extract(source, [tensor.t(), tensor[:1].expand(2, 3), tensor])
    tensor.zero_()
    transposed, expanded, whole = _receive(metadata)
    assert transposed.tolist() == [[0, 3], [1, 4], [2, 5]] and expanded.tolist() == [[0, 1, 2]] * 2
    assert whole.tolist() == [[0, 0, 0]] * 2


def test_the_memory_stays_when_the_tensor_is_given_other_data() -> None:
    source, tensor = CrossMemoryTransport(), torch.ones(1 << 16)
    metadata = _extract(source, [tensor])
    tensor.data = torch.zeros(1)
    others = [torch.full((1 << 16,), 7.0) for _ in range(3)]
    assert torch.equal(_receive(metadata)[0], torch.ones(1 << 16))
    del others


def test_one_free_undoes_every_extract_of_the_object() -> None:
    source, tensor = CrossMemoryTransport(), torch.arange(100)
    both = [_extract(source, [tensor]) for _ in range(2)]
    assert all(torch.equal(_receive(metadata)[0], tensor) for metadata in both)
    source.garbage_collect("object", both[0], [tensor])
    source.garbage_collect("object", both[1], [tensor])
    for metadata in both:
        with pytest.raises(RuntimeError, match="object object is gone"):
            _receive(metadata)


def test_a_receiver_that_comes_after_the_free_gets_an_error_and_writes_nothing() -> None:
    source, tensor, buffer = CrossMemoryTransport(), torch.ones(4), torch.zeros(4)
    stale = _extract(source, [tensor])
    source.garbage_collect("object", stale, [tensor])
    _extract(source, [tensor], "another")
    with pytest.raises(RuntimeError, match="is gone"):
        _receive(stale, [buffer])
    assert buffer.tolist() == [0, 0, 0, 0]


def test_a_source_that_goes_away_takes_its_objects_along() -> None:
    source, tensor = CrossMemoryTransport(), torch.ones(4)
    metadata = _extract(source, [tensor])
    del source
    with pytest.raises(RuntimeError, match="is gone"):
        _receive(metadata)


def test_memory_used_again_under_a_reader_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    source, tensor = CrossMemoryTransport(), torch.ones(4)
    metadata = _extract(source, [tensor])
    landing = cross_memory.landing

    def free_and_use_again(*args: Any) -> list[Any]:
        source.garbage_collect("object", metadata, [tensor])
        tensor.fill_(2)
        _extract(source, [tensor], "another")
        return landing(*args)

    monkeypatch.setattr(cross_memory, "landing", free_and_use_again)
    with pytest.raises(RuntimeError, match="is gone"):
        _receive(metadata)


@pytest.mark.parametrize("most", [1, 7, 100, 5000])
def test_a_read_that_stops_early_goes_on_at_the_right_place(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """As the kernel does after 2 GiB."""
    read_memory = cross_memory._read_memory

    def stops_early(pid: int, ours: int, count: int, theirs: int, _: int, flags: int) -> int:
        pieces = [(ctypes.c_ulong * (2 * count)).from_address(address) for address in (ours, theirs)]
        assert pieces[0][1::2] == pieces[1][1::2]
        left, short = most, [array("L"), array("L")]
        for i in range(count):
            size = min(pieces[0][2 * i + 1], left)
            left -= size
            for side, piece in zip(short, pieces, strict=True):
                side.extend((piece[2 * i], size))
        return read_memory(pid, short[0].buffer_info()[0], count, short[1].buffer_info()[0], count, flags)

    monkeypatch.setattr(cross_memory, "_read_memory", stops_early)
    source = CrossMemoryTransport()
    sent = [torch.arange(count) for count in (0, 5, 1, 0, 0, 40, 3, 0)]
    received = _receive(_extract(source, sent))
    assert [tensor.tolist() for tensor in received] == [tensor.tolist() for tensor in sent]


def test_garbled_metadata_is_an_error() -> None:
    source = CrossMemoryTransport()
    metadata = _extract(source, [torch.ones(3), torch.ones(2)])
    pieces = array("L", metadata.pieces)
    changes: list[dict[str, Any]] = [
        {"token": b""},
        {"token": bytes(16)},
        {"token": metadata.token[:-1]},
        {"pid": 0},
        {"pid": -1},
        {"pid": (1 << 31) - 1},
        {"pid": "self"},
        {"pieces": b""},
        {"pieces": metadata.pieces[:-1]},
        {"pieces": metadata.pieces[:-16]},
        {"pieces": metadata.pieces[16:]},
        {"pieces": (array("L", [0]) + pieces).tobytes()},
        {"pieces": (pieces[:-2] + array("L", [8, 16])).tobytes()},
        {"pieces": (array("L", [8]) + pieces[1:]).tobytes()},
    ]
    for change in changes:
        with pytest.raises((RuntimeError, ValueError)):
            _receive(dataclasses.replace(metadata, **change))
    assert _receive(metadata)[1].tolist() == [1, 1]


def test_what_the_kernel_forbids_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbids(*args: Any) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    source = CrossMemoryTransport()
    metadata = _extract(source, [torch.ones(3)])
    monkeypatch.setattr(cross_memory, "_read_memory", forbids)
    with pytest.raises(PermissionError, match=r"memory of process \d+: Operation not permitted; .*ptrace_scope"):
        _receive(metadata)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_another_user_cannot_read() -> None:
    source = CrossMemoryTransport()
    metadata = _extract(source, [torch.ones(3)])
    child = os.fork()
    if not child:
        try:
            os.setresuid(65534, 65534, 65534)
            _receive(metadata)
            os._exit(1)
        except PermissionError:
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_metadata_is_small() -> None:
    tensors = [torch.ones(64, 3 + i) for i in range(1000)]
    assert len(pickle.dumps(CrossMemoryTransport().extract_tensor_transport_metadata("object", tensors))) < 50_000


_OTHER_PROCESS = """
import pickle, sys, numpy, torch
from reference_transports.cross_memory import CrossMemoryTransport

def put(value):
    pickle.dump(value, sys.stdout.buffer)
    sys.stdout.buffer.flush()

transport = CrossMemoryTransport()
tensors = [torch.arange(1000), numpy.arange(5.0)[::-1], *torch.arange(5000).view(2500, 2)]
put(transport.extract_tensor_transport_metadata("theirs", tensors))
ours = pickle.load(sys.stdin.buffer)
(tensor,) = transport.recv_multiple_tensors("ours", ours, None)
put(transport.extract_tensor_transport_metadata("doubled", [tensor * 2]))
sys.stdin.buffer.read()  # until killed
"""


def test_between_processes_and_after_a_kill() -> None:
    source, tensor = CrossMemoryTransport(), torch.arange(6).view(2, 3).t()
    ours = source.extract_tensor_transport_metadata("ours", [tensor])
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER_PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdin and other.stdout
        try:
            theirs = pickle.load(other.stdout)
            numbers, backwards, *rows = _receive(theirs)
            assert torch.equal(numbers, torch.arange(1000)) and backwards.tolist() == [4, 3, 2, 1, 0]
            assert torch.equal(torch.stack(rows), torch.arange(5000).view(2500, 2))
            pickle.dump(ours, other.stdin)
            other.stdin.flush()
            assert torch.equal(_receive(pickle.load(other.stdout))[0], tensor * 2)
            # What a process id leads to when it was given to another process meanwhile.
            with pytest.raises(RuntimeError, match="is gone"):
                _receive(dataclasses.replace(ours, pid=other.pid))
            with pytest.raises(RuntimeError, match="is gone"):
                _receive(dataclasses.replace(theirs, pid=os.getpid()))
        finally:
            other.kill()
        with pytest.raises(RuntimeError, match="is gone"):
            _receive(theirs)
    with pytest.raises(RuntimeError, match="is gone"):
        _receive(theirs)
    assert torch.equal(numbers, torch.arange(1000))
