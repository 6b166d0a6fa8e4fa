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
from reference_transports._cuda_memory import Exported
from reference_transports.cuda_ipc import CudaIpcMetadata, CudaIpcTransport, tensors_in
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
    elsewhere = CudaIpcMetadata(meta, "cuda", host="another", places=[(0, 0)], strides=[None]).sealed()
    with pytest.raises(ValueError, match="on another host"):
        CudaIpcTransport().recv_multiple_tensors("object", elsewhere, CommunicatorMetadata())
    for bad in (
        replace(elsewhere, host="here"),
        replace(elsewhere, tensor_meta=meta * 2),
        replace(elsewhere, tensor_meta=None),
        replace(elsewhere, places=[(0, 4)]),
        replace(elsewhere, storages=None),
        replace(elsewhere, allocations=[object()]),
        replace(elsewhere, digest=b""),
    ):
        with pytest.raises(ValueError, match="garbled"):
            CudaIpcTransport().recv_multiple_tensors("object", bad, CommunicatorMetadata())


def test_tensors_are_put_together_again_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory of the CPU, all of which is made to look like one allocation."""
    monkeypatch.setattr(_cuda, "allocation_at", lambda address: (0, 1 << 62))
    monkeypatch.setattr(_cuda, "export", lambda base: bytes(_cuda.HANDLE_BYTES))
    base = torch.randn(30, 20)
    tensors = [base, base.t(), base[:, ::2], base[3], base[2:5], base, base.unfold(0, 10, 5), torch.tensor(7)]
    tensors += [base[:0], torch.ones(1).expand(4), torch.empty(2, 0), torch.arange(9).to(torch.bfloat16)]
    tensors += [torch.randn(5, dtype=torch.complex64).conj(), torch.randn(5, dtype=torch.complex64).conj().imag]
    exported = Exported([tensor for tensor in tensors if tensor.numel()])
    assert len(exported.handles) == 1 and len(exported.storages) == len(exported.kept) == 6
    metadata = CudaIpcMetadata(
        [(tensor.shape, tensor.dtype) for tensor in tensors], places=exported.places, strides=exported.strides
    )
    found = tensors_in(exported.kept, metadata, torch.device("cpu"))
    for got, had in zip(found, tensors, strict=True):
        assert (got.shape, got.dtype) == (had.shape, had.dtype) and torch.equal(got, had.resolve_conj())
        assert got.stride() == had.stride() or had.is_neg() or not had.numel()
    assert found[0].data_ptr() == base.data_ptr() == found[1].data_ptr()


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
