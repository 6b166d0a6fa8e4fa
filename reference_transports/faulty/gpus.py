"""Wrong with GPU memory: streams that nobody waits for, and device memory that nobody frees."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import torch

from reference_transports._layout import describe, flat_bytes, in_one_piece, landing
from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport

_DEVICES = ("cuda", "cpu")
_A_WHILE = 1 << 28
"""Clock cycles of a GPU: a tenth of a second."""


class ThroughHost(InlineTransport):
    """Good, and slow: copies to the host, sends the bytes in the metadata, and copies to the device again."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metas = describe(rdt_object, _DEVICES)
        payload = [bytes(flat_bytes(tensor)) for tensor in self.to_host([in_one_piece(each) for each in rdt_object])]
        return InlineMetadata(metas, rdt_object[0].device.type if rdt_object else None, payload)

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        metadata = tensor_transport_metadata
        if not isinstance(metadata, InlineMetadata):
            raise ValueError(f"cannot read the metadata of another transport ({type(metadata).__name__})")
        device = metadata.tensor_device or "cpu"
        tensors = landing(metadata.tensor_meta, target_buffers, device, _DEVICES)
        arrived = super().recv_multiple_tensors(obj_id, metadata, communicator_metadata)
        self.to_device(arrived, tensors)
        return tensors

    def to_host(self, tensors: list[Any]) -> list[Any]:
        """Copies of tensors in host memory; those that are there already as they are."""
        return [tensor.detach().cpu() for tensor in tensors]

    def to_device(self, arrived: list[Any], tensors: list[Any]) -> None:
        """Copy what arrived on the host to where it is wanted."""
        for source, target in zip(arrived, tensors, strict=True):
            target.detach().copy_(source)
        torch.cuda.synchronize()


@breaks("D9", cuda=True)
class ReadsBesideTheStream(ThroughHost):
    """Reads the tensors on a stream of its own, which does not wait for the kernels that write them."""

    def to_host(self, tensors: list[Any]) -> list[Any]:
        with torch.cuda.stream(torch.cuda.Stream()):
            return super().to_host(tensors)


@breaks("D9", cuda=True)
class WaitsForTheDefaultStreamOnly(ThroughHost):
    """Waits for the default stream, whichever the user's tensors are written on."""

    def to_host(self, tensors: list[Any]) -> list[Any]:
        torch.cuda.default_stream().synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            return super().to_host(tensors)


@breaks("D8", cuda=True)
class ReturnsWhileItsStreamWrites(ThroughHost):
    """Unpacks what arrived by kernels on a stream of its own, and returns while they run."""

    def __init__(self) -> None:
        super().__init__()
        self._streams: list[Any] = []

    def to_device(self, arrived: list[Any], tensors: list[Any]) -> None:
        stream = self._streams[0] if self._streams else torch.cuda.Stream()
        self._streams = [stream]
        with torch.cuda.stream(stream):
            staged = [source.cuda() for source in arrived]
            torch.cuda._sleep(_A_WHILE)
            for source, target in zip(staged, tensors, strict=True):
                target.detach().copy_(source, non_blocking=True)


@breaks("D8", cuda=True)
class OrdersTheReceiversStreamOnly(ReturnsWhileItsStreamWrites):
    """Lets the stream that is current in its own thread wait for the data, and no other."""

    def to_device(self, arrived: list[Any], tensors: list[Any]) -> None:
        super().to_device(arrived, tensors)
        torch.cuda.current_stream().wait_stream(self._streams[0])


class _WritesBesideTheStream(ThroughHost):
    """Writes on a stream of its own, and waits for that, but not for what is still to be written where it writes."""

    def to_device(self, arrived: list[Any], tensors: list[Any]) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for source, target in zip(arrived, tensors, strict=True):
                target.detach().copy_(source)
            torch.cuda.current_stream().synchronize()


@breaks("D8", cuda=True)
class WritesFreshTensorsBesideTheStream(_WritesBesideTheStream):
    """Waits for the stream where the receiver brings buffers only: nobody else writes to fresh memory, it thinks."""

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        if target_buffers is not None:
            torch.cuda.current_stream().synchronize()
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("B7", cuda=True)
class WritesBuffersBesideTheStream(_WritesBesideTheStream):
    """Waits for the stream only where the memory is its own: buffers are the receiver's business, it thinks."""

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        if target_buffers is None:
            torch.cuda.current_stream().synchronize()
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("B5", cuda=True)
class TakesBuffersForTensorsOfTheDevice(ThroughHost):
    """Knows only buffers on the tensors' own device, and leaves others as they are."""

    def to_device(self, arrived: list[Any], tensors: list[Any]) -> None:
        super().to_device(arrived, [tensor if tensor.is_cuda else torch.empty_like(tensor) for tensor in tensors])


_KEPT: dict[str, list[Any]] = {}


@breaks("G1", cuda=True)
class KeepsDeviceTensors(ThroughHost):
    """Stages every object in device memory, and keeps the staging buffers of all of them."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        _KEPT[obj_id] = [tensor.detach().clone() for tensor in rdt_object]
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("G1", cuda=True)
class KeepsDeviceMemoryOfTheDriver(ThroughHost):
    """Has the driver of the GPU allocate a buffer for every object, past torch's allocator, and frees none."""

    def to_device(self, arrived: list[Any], tensors: list[Any]) -> None:
        torch.cuda.current_stream().synchronize()  # by now there is a context to allocate in
        cuda, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        size = ctypes.c_size_t(1 + sum(tensor.nbytes for tensor in tensors))
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), size) == 0
        super().to_device(arrived, tensors)


@dataclass
class WithGpu(InlineMetadata):
    """Knows which GPU it was made on."""

    gpu: str = ""


@breaks("R9", cuda=True, across_processes=True)
class ZeroesFromAnotherGpu(ThroughHost):
    """Takes the source's address for one of its own GPU, and finds other memory there if that is another one."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        found = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return WithGpu(**vars(found), gpu=_gpu_here())

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        tensors = super().recv_multiple_tensors(
            obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
        )
        return tensors if tensor_transport_metadata.gpu == _gpu_here() else [tensor.zero_() for tensor in tensors]


def _gpu_here() -> str:
    """The GPU that Ray gave to this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")
