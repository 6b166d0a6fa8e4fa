"""Transports that deliver something else than what was sent, or change what they should leave alone."""

from __future__ import annotations

import mmap
import pickle
import weakref
from collections import defaultdict
from typing import Any, ClassVar

import numpy as np
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._layout import flat_bytes, landing, sizes
from reference_transports._segments import Span
from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.shared_memory import SharedMemoryMetadata, SharedMemoryTransport
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport


class _Repacked(InlineTransport):
    """Packs every tensor's bytes in a way of its own."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        metadata.payload = [
            self.pack(tensor)[: len(data)].ljust(len(data), b"\0")
            for tensor, data in zip(rdt_object, metadata.payload, strict=True)
        ]
        return metadata

    def pack(self, tensor: Any) -> bytes:
        """The bytes to send."""
        return bytes(flat_bytes(tensor))


class _Unpacked(InlineTransport):
    """Returns something else than the tensors that arrived."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        tensors = super().recv_multiple_tensors(
            obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
        )
        return self.unpack(tensors)

    def unpack(self, tensors: list[Any]) -> list[Any]:
        """What the user gets."""
        return tensors


@breaks("D1")
class MovesWholeChunksOnly(_Repacked):
    """Moves large tensors in chunks of 64 KiB, and forgets what does not fill the last one."""

    def pack(self, tensor: Any) -> bytes:
        data = super().pack(tensor)
        chunk = 64 << 10
        return data if len(data) < chunk else data[: len(data) // chunk * chunk]


@breaks("D1")
class SendsBfloat16AsFloat32(_Repacked):
    """Converts what numpy does not know to what it knows, and back; no NaN survives that as it was."""

    def pack(self, tensor: Any) -> bytes:
        return super().pack(tensor.float().bfloat16() if tensor.dtype == torch.bfloat16 else tensor)


@breaks("D1")
class TakesUnsignedForSigned(_Unpacked):
    """Knows the dtypes of old versions of torch only, which had no uint16."""

    def unpack(self, tensors: list[Any]) -> list[Any]:
        return [tensor.view(torch.int16) if tensor.dtype == torch.uint16 else tensor for tensor in tensors]


@breaks("D1")
class GivesScalarsADimension(_Unpacked):
    """Uses np.ascontiguousarray, which returns one dimension where there was none."""

    def unpack(self, tensors: list[Any]) -> list[Any]:
        return [tensor.reshape(1) if tensor.ndim == 0 else tensor for tensor in tensors]


@breaks("D2")
class SkipsEmptyTensors(_Unpacked):
    """Leaves out tensors without elements, since there is nothing to move."""

    def unpack(self, tensors: list[Any]) -> list[Any]:
        return [tensor for tensor in tensors if tensor.numel()]


@breaks("D2")
class GroupsByDtype(_Unpacked):
    """Moves tensors of one dtype together and returns them in that order."""

    def unpack(self, tensors: list[Any]) -> list[Any]:
        return sorted(tensors, key=lambda tensor: str(tensor.dtype))


@breaks("D2")
class CountsInOneByte(_Unpacked):
    """Writes the number of tensors into a header of one byte."""

    def unpack(self, tensors: list[Any]) -> list[Any]:
        return tensors[: len(tensors) % 256]


def _storage(tensor: torch.Tensor) -> bytes:
    """All bytes of the memory that a tensor lies in."""
    return bytes(flat_bytes(torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())))


@breaks("D3")
class IgnoresStrides(_Repacked):
    """Reads as many bytes as the tensor has, one after another from its first element."""

    def pack(self, tensor: Any) -> bytes:
        return _storage(tensor)[tensor.storage_offset() * tensor.itemsize :]


@breaks("D3")
class IgnoresOffsets(_Repacked):
    """Takes a contiguous tensor for its storage, and reads from the beginning of that."""

    def pack(self, tensor: Any) -> bytes:
        return _storage(tensor) if tensor.is_contiguous() else super().pack(tensor)


@breaks("D3")
class SendsRepeatedElementsOnce(_Repacked):
    """Saves the copies of an expanded tensor, and does not expand it again."""

    def pack(self, tensor: Any) -> bytes:
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.numel():
                tensor = tensor.narrow(dimension, 0, 1)
        return super().pack(tensor)


@breaks("D3")
class SendsUnresolvedConjugates(_Repacked):
    """Sends the memory of a lazily conjugated tensor as it lies there."""

    def pack(self, tensor: Any) -> bytes:
        return super().pack(tensor.conj() if tensor.is_conj() else tensor)


@breaks("D3")
class KeysTensorsByAddress(InlineTransport):
    """Packs every address once, though a tensor and a view of it may begin at the same one."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        packed: dict[int, bytes] = {}
        for tensor, data in zip(rdt_object, metadata.payload, strict=True):
            packed.setdefault(tensor.data_ptr(), data)
        metadata.payload = [
            packed[tensor.data_ptr()][: len(data)].ljust(len(data), b"\0")
            for tensor, data in zip(rdt_object, metadata.payload, strict=True)
        ]
        return metadata


@breaks("D3")
class SendsOnceWhatLooksAlike(InlineTransport):
    """Tells the tensors of an object apart by address, shape and dtype, as if a matrix and its transpose were one."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        known: dict[Any, bytes] = {}
        for index, tensor in enumerate(rdt_object):
            if tensor.numel():
                key = tensor.data_ptr(), tensor.shape, tensor.dtype
                metadata.payload[index] = known.setdefault(key, metadata.payload[index])
        return metadata


@breaks("D4")
class EmptiesWhatItSent(TcpTransport):
    """Takes the tensors for its own send buffers, and clears them for the next use."""

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        super().send_multiple_tensors(tensors, tensor_transport_metadata, communicator_metadata)
        for tensor in tensors:
            flat_bytes(tensor)[:] = bytes(tensor.nbytes)


class _Mapped(SharedMemoryTransport):
    """Saves the receiver's copy: returns tensors that lie in the segment itself."""

    protection: ClassVar[int]

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        metadata = tensor_transport_metadata
        assert isinstance(metadata, SharedMemoryMetadata)
        if target_buffers is not None:
            return super().recv_multiple_tensors(obj_id, metadata, communicator_metadata, target_buffers)
        with open(f"/proc/{metadata.pid}/fd/{metadata.fd}", "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0, prot=self.protection)
        tensors, span = [], Span(metadata.tensor_meta)
        for (shape, dtype), size, begin in zip(metadata.tensor_meta, span.nbytes, span.offsets, strict=True):
            assert isinstance(dtype, torch.dtype)
            data = torch.from_numpy(np.frombuffer(memory, np.uint8, size, begin))
            tensors.append(data.view(dtype).view(shape))
        return tensors


@breaks("D5")
class ReceiversShareTheSegment(_Mapped):
    """Maps the segment for writing into every receiver."""

    protection = mmap.PROT_READ | mmap.PROT_WRITE


@breaks("D8b")
class ReturnsReadOnlyMemory(_Mapped):
    """Maps the segment for reading: whoever writes into such a tensor ends with a segmentation fault."""

    protection = mmap.PROT_READ


@breaks("D6")
class ReusesItsTensors(InlineTransport):
    """Keeps the tensors that it allocates, and receives the next object of the same shapes into them."""

    from_bytes = 0

    def __init__(self) -> None:
        self._kept: dict[Any, list[Any]] = {}

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        meta = tensor_transport_metadata.tensor_meta
        if target_buffers is None and sum(sizes(meta)) >= self.from_bytes:
            target_buffers = self._kept.setdefault(tuple(meta), landing(meta))
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("D6")
class ReusesLargeTensors(ReusesItsTensors):
    """Does so above a megabyte, where to allocate takes long."""

    from_bytes = 1 << 20


@breaks("D6")
class TakesBackWhatViewsShow(InlineTransport):
    """Receives into the memory of tensors that are gone, and does not see the views of them that are not."""

    def __init__(self) -> None:
        self._unused: defaultdict[Any, list[Any]] = defaultdict(list)

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        buffers = target_buffers or [self._lent(each) for each in landing(tensor_transport_metadata.tensor_meta)]
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, buffers)

    def _lent(self, fresh: torch.Tensor) -> torch.Tensor:
        unused = self._unused[fresh.shape, fresh.dtype]
        own = unused.pop() if unused else fresh
        lent = own.view_as(own)
        weakref.finalize(lent, unused.append, own)
        return lent


@breaks("D7")
class PicklesTensors(InlineTransport):
    """Pickles the tensors, and a pickled view brings its whole storage along."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        metadata.payload = [pickle.dumps(tensor.detach()) for tensor in rdt_object]
        return metadata

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        assert isinstance(tensor_transport_metadata, InlineMetadata)
        tensors = [pickle.loads(data) for data in tensor_transport_metadata.payload]
        if target_buffers is None:
            return tensors
        targets = landing(tensor_transport_metadata.tensor_meta, target_buffers)
        for target, tensor in zip(targets, tensors, strict=True):
            target.copy_(tensor)
        return targets


@breaks("D8")
class ReturnsTooEarly(SocketPullTransport):
    """Does not wait for the thread that receives."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        self._latest = fetch_request  # dropping it would end the transfer
        return fetch_request.tensors
