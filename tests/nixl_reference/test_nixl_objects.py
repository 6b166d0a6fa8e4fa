"""The NIXL transport, in one process and on CPUs: what it carries, what it refuses, and what it keeps."""

from __future__ import annotations

import pickle
import sys
import weakref
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from nixl_tools import COMM, extract, same, send, settled
from ray.experimental import TensorTransportMetadata

from reference_transports.nixl import NixlTransport, memory

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:ComplexHalf support")]
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


def test_the_class_travels() -> None:
    assert pickle.loads(pickle.dumps(NixlTransport)) is NixlTransport
