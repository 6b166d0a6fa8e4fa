"""Transports that say something wrong about their objects. See `reference_transports.faulty`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from reference_transports._layout import describe, flat_bytes
from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.shared_memory import SharedMemoryMetadata, SharedMemoryTransport
from reference_transports.socket_pull import SocketPullTransport


@breaks("M1")
class DescribesTheLargestFirst(InlineTransport):
    """Sorts the tensors by size, to pack them well, and does not sort them back."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        by_size = sorted(rdt_object, key=lambda tensor: tensor.nbytes, reverse=True)
        return super().extract_tensor_transport_metadata(obj_id, by_size)


@breaks("M1")
class DescribesShapesAsLists(InlineTransport):
    """Turns shapes into lists, as JSON does; a list equals no shape, so every target buffer is refused."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return replace(metadata, tensor_meta=[(list(shape), dtype) for shape, dtype in metadata.tensor_meta])


@breaks("M2")
class GivesTheDeviceItself(InlineTransport):
    """Gives the tensors' torch.device, which equals none of the strings that were registered."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return replace(metadata, tensor_device=rdt_object[0].device if rdt_object else None)


@breaks("M2")
class LeavesTheDeviceOut(InlineTransport):
    """Does not set the device, as it knows only one."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        return replace(super().extract_tensor_transport_metadata(obj_id, rdt_object), tensor_device=None)


@breaks("M3")
class LooksAtTheFirstTensorOnly(InlineTransport):
    """Takes the device of the first tensor for that of all."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        describe(rdt_object[:1])
        return InlineMetadata(
            tensor_meta=[(tensor.shape, tensor.dtype) for tensor in rdt_object],
            tensor_device="cpu" if rdt_object else None,
            payload=[bytes(flat_bytes(tensor)) for tensor in rdt_object],
        )


@breaks("M4")
class ExpectsAtLeastOneTensor(InlineTransport):
    """Reads the device from the first tensor, which there may not be."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return replace(metadata, tensor_device=rdt_object[0].device.type)


@breaks("M4")
class FreesWhatWasNeverRegistered(SharedMemoryTransport):
    """Has nothing to register for an object without tensors, and deregisters it all the same (ray#57603)."""

    def __init__(self) -> None:
        super().__init__()
        self._handles: dict[str, int] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> SharedMemoryMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        if rdt_object:
            self._handles[obj_id] = metadata.fd
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        handle = self._handles.pop(obj_id, None)
        if handle is None and obj_id in self._segments:
            raise TypeError("cannot deregister None")
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)


@breaks("M4b")
class ReceivesAtLeastOneTensor(InlineTransport):
    """Reads the first tensor's shape from the metadata, which there may not be."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        assert tensor_transport_metadata.tensor_meta[0] is not None
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("M5")
class MakesTensorsContiguousInPlace(InlineTransport):
    """Gives the producer's own tensors another memory and other strides."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        describe(rdt_object)
        for tensor in rdt_object:
            tensor.data = tensor.data.contiguous()
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("M5")
class SwitchesGradientsOff(InlineTransport):
    """Wants to read the tensors with numpy, which refuses those that require a gradient."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        describe(rdt_object)
        for tensor in rdt_object:
            tensor.detach_()
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("M6")
class RegistersAnObjectOnce(SocketPullTransport):
    """Takes an object that it knows already for a mistake."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        if obj_id in self._objects:
            raise ValueError(f"object {obj_id} is already registered")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("M6")
class CountsEveryExtract(SocketPullTransport):
    """Counts how often memory is registered, and counts an object that is described again as another one."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[int, int] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        for tensor in rdt_object:
            self._counts[tensor.data_ptr()] = self._counts.get(tensor.data_ptr(), 0) + 1
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        for tensor in tensors:
            self._counts[tensor.data_ptr()] -= 1
            if not self._counts[tensor.data_ptr()]:
                del self._counts[tensor.data_ptr()]


@breaks("M7")
class ServesBeforeItLooks(SocketPullTransport):
    """Takes an object in before it knows whether it can carry it."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        self._objects[obj_id] = rdt_object
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("M7")
class RegistersUpToTheEmptyTensor(InlineTransport):
    """Registers one tensor after the other, until one has no memory: what it has registered by then stays so."""

    def __init__(self) -> None:
        super().__init__()
        self._registered: dict[int, int] = {}
        self._objects: dict[str, list[int]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        for tensor in rdt_object:
            if not tensor.numel():
                raise ValueError("a tensor without elements cannot be registered")
            self._registered[tensor.data_ptr()] = self._registered.get(tensor.data_ptr(), 0) + 1
        if obj_id in self._objects:  # described again
            self._release(self._objects[obj_id])
        self._objects[obj_id] = [tensor.data_ptr() for tensor in rdt_object]
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        self._release(self._objects.pop(obj_id, []))

    def _release(self, addresses: list[int]) -> None:
        for address in addresses:
            self._registered[address] -= 1
            if not self._registered[address]:
                del self._registered[address]


@breaks("M7")
class ClosesOnlyWhenAllIsWell(InlineTransport):
    """Opens a file to stage an object in, and does not close it when something goes wrong."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        staging = os.memfd_create("staging")
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        os.close(staging)
        return metadata


@breaks("M8")
class TakesQuantizedTensorsForNumbers(InlineTransport):
    """Carries the integers of a quantized tensor and loses what they stand for."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        plain = [tensor.int_repr() if tensor.is_quantized else tensor for tensor in rdt_object]
        return super().extract_tensor_transport_metadata(obj_id, plain)


@breaks("M8")
class RefusesAtTheReceiver(InlineTransport):
    """Takes every dtype at the source, and finds out at the receiver that numpy has no such dtype."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        for _, dtype in tensor_transport_metadata.tensor_meta:
            torch.empty(0, dtype=dtype).numpy()  # pyright: ignore[reportCallIssue, reportArgumentType]
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)
