"""What of the GPU transports needs no GPU. The rest is in tests/gpu."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports import _cuda
from reference_transports._cuda_memory import Exported, rows, tensors_in
from reference_transports.cuda_ipc import CudaIpcMetadata, CudaIpcTransport
from reference_transports.nccl import NcclTransport

TRANSPORTS = [CudaIpcTransport, NcclTransport]


@pytest.mark.parametrize("kind", TRANSPORTS)
@pytest.mark.parametrize(
    "tensors",
    [[torch.ones(3)], [torch.ones(3), torch.ones(3, device="meta")], [np.ones(3)], [torch.ones(3), np.ones(3)]],
    ids=["cpu", "several devices", "array", "both"],
)
def test_what_is_not_on_one_gpu_is_refused(kind: type[TensorTransportManager], tensors: list[Any]) -> None:
    with pytest.raises(ValueError, match="torch tensors on one GPU, got"):
        kind().extract_tensor_transport_metadata("object", tensors)


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_no_tensors_need_no_gpu(kind: type[TensorTransportManager]) -> None:
    source, destination = kind(), kind()
    metadata = pickle.loads(pickle.dumps(source.extract_tensor_transport_metadata("object", [])))
    assert (metadata.tensor_meta, metadata.tensor_device) == ([], None)
    communicator = source.get_communicator_metadata(None, None, "NAME")  # pyright: ignore[reportArgumentType]
    if not kind.is_one_sided():
        source.send_multiple_tensors([], metadata, communicator)
    assert destination.recv_multiple_tensors("object", metadata, communicator) == []
    source.garbage_collect("object", metadata, [])
    source.garbage_collect("never seen", metadata, [])


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_foreign_metadata_are_an_error(kind: type[TensorTransportManager]) -> None:
    foreign = TensorTransportMetadata([(torch.Size([3]), torch.float32)], "cuda")
    communicator = kind().get_communicator_metadata(None, None, "NAME")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="is not the metadata of"):
        kind().recv_multiple_tensors("object", foreign, communicator)


def test_an_object_elsewhere_or_garbled_is_an_error() -> None:
    meta: Any = [(torch.Size([3]), torch.float32)]
    elsewhere = CudaIpcMetadata(meta, "cuda", host="another", places=bytes(16)).sealed()
    with pytest.raises(ValueError, match="on another host"):
        CudaIpcTransport().recv_multiple_tensors("object", elsewhere, CommunicatorMetadata())
    for bad in (
        replace(elsewhere, host="here"),
        replace(elsewhere, tensor_meta=meta * 2),
        replace(elsewhere, tensor_meta=None),
        replace(elsewhere, places=bytes([0] * 8 + [4] + [0] * 7)),
        replace(elsewhere, storages=None),
        replace(elsewhere, allocations=[object()]),
        replace(elsewhere, digest=b""),
    ):
        with pytest.raises(ValueError, match="garbled"):
            CudaIpcTransport().recv_multiple_tensors("object", bad, CommunicatorMetadata())


@pytest.fixture
def one_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of the CPU, all of which is made to look like one allocation of a GPU."""
    monkeypatch.setattr(_cuda, "allocation_at", lambda address: (0, 1 << 62))
    monkeypatch.setattr(_cuda, "export", lambda base: bytes(_cuda.HANDLE_BYTES))


def put_together(exported: Exported, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    tensor_meta = [(tensor.shape, tensor.dtype) for tensor in tensors]
    return tensors_in(exported.kept, tensor_meta, exported.places, exported.strides, torch.device("cpu"))


@pytest.mark.usefixtures("one_allocation")
def test_tensors_are_put_together_again_as_they_were() -> None:
    base = torch.randn(30, 20)
    tensors = [base, base.t(), base[:, ::2], base[3], base[2:5], base, base.unfold(0, 10, 5), torch.tensor(7)]
    tensors += [base[:0], torch.ones(1).expand(4), torch.empty(2, 0), torch.arange(9).to(torch.bfloat16)]
    tensors += [torch.randn(5, dtype=torch.complex64).conj(), torch.randn(5, dtype=torch.complex64).conj().imag]
    exported = Exported([tensor for tensor in tensors if tensor.numel()])
    assert len(exported.handles) == 1 and len(rows(exported.storages, 3)) == len(exported.kept) == 6
    found = put_together(exported, tensors)
    for got, had in zip(found, tensors, strict=True):
        assert (got.shape, got.dtype) == (had.shape, had.dtype) and torch.equal(got, had.resolve_conj())
        assert got.stride() == had.stride() or had.is_neg() or not had.numel()
    assert found[0].data_ptr() == base.data_ptr() == found[1].data_ptr()


@pytest.mark.usefixtures("one_allocation")
def test_tensors_that_lie_one_after_the_other_are_none_the_less_apart() -> None:
    whole = torch.arange(600.0)
    lines = whole[:120].view(20, 6)
    tensors = [*whole.split(60), *lines.split([1, 7, 12]), *lines, lines[:, :3], lines[:0], *lines.to(torch.int32)]
    tensors += [whole[0], whole[1], whole[2:9], whole[9:12], whole[11:13], lines[2:3], lines[3]]
    found = put_together(Exported([tensor for tensor in tensors if tensor.numel()]), tensors)
    for got, had in zip(found, tensors, strict=True):
        assert (got.shape, got.dtype, got.stride()) == (had.shape, had.dtype, had.stride()) and torch.equal(got, had)
        assert not had.numel() or (got.data_ptr(), got._base) == (had.data_ptr(), None)
    found[0].add_(1)
    found[1].requires_grad_()
    assert [tensor._version for tensor in found[:3]] == [1, 0, 0], "what is done to one is not done to its neighbours"
    assert found[1].is_leaf and not found[2].requires_grad


def test_what_lies_in_many_allocations_is_found_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations of 1,000 bytes from 10,000 on, of which every third cannot be exported."""
    monkeypatch.setattr(_cuda, "allocation_at", lambda address: (address // 1000 * 1000, 1000))

    def export(base: int) -> bytes:
        if not base // 1000 % 3:
            raise _cuda.CudaError("not this one")
        return str(base).encode()

    monkeypatch.setattr(_cuda, "export", export)
    exported = Exported([])
    addresses = [17_000, 12_500, 10_001, 17_999, 16_000, 10_000, 15_250, 12_000]
    assert exported._export(addresses) == [1, 6, 7]
    assert exported.handles == [b"10000", b"16000", b"17000"]
    assert exported._within(17_999, 1) == (2, 999, 1) and exported._within(16_000, 8) == (1, 0, 8)
    assert exported._export([13_000, 5000]) == [] and exported._within(5010, 3) == (3, 10, 3)


@pytest.mark.parametrize("what", ["metadata of another's object", "metadata of other tensors"])
def test_nccl_sends_only_what_it_described(what: str) -> None:
    source, stranger = NcclTransport(), NcclTransport()
    metadata: Any = (stranger if "another" in what else source).extract_tensor_transport_metadata("object", [])
    if "other tensors" in what:
        metadata = replace(metadata, tensor_meta=[(torch.Size([3]), torch.float32)])
    with pytest.raises(ValueError, match="not those of the tensors to send"):
        source.send_multiple_tensors([], metadata, source.get_communicator_metadata(None, None, "NAME"))


def test_what_they_say_of_themselves() -> None:
    assert NcclTransport.can_abort_transport() and not NcclTransport.is_one_sided()
    assert not CudaIpcTransport.can_abort_transport() and CudaIpcTransport.is_one_sided()
