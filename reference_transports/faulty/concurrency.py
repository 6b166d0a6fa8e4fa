"""Transports that are right as long as one thing happens at a time. See `reference_transports.faulty`."""

from __future__ import annotations

import os
import tempfile
from typing import Any, ClassVar

from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.socket_pull import SocketPullTransport


@breaks("X1")
class SharesAScratchFile(InlineTransport):
    """Stages whatever it sends and receives in one place, and two threads do so at the same time."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryFile()  # noqa: SIM115

    def _staged(self, data: bytes) -> bytes:
        os.pwrite(self._scratch.fileno(), data, 0)
        return os.pread(self._scratch.fileno(), len(data), 0)

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        metadata.payload = [self._staged(data) for data in metadata.payload]
        return metadata

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        assert isinstance(tensor_transport_metadata, InlineMetadata)
        tensor_transport_metadata.payload = [self._staged(data) for data in tensor_transport_metadata.payload]
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("X1")
class CountsWithoutALock(SocketPullTransport):
    """Goes through its objects to see how much it serves, while another thread adds or frees some."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        self._serving = sum(tensor.nbytes for tensors in self._objects.values() for tensor in tensors)
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        self._serving = sum(tensor.nbytes for tensors in self._objects.values() for tensor in tensors)


@breaks("X2")
class SharesObjectsAmongInstances(InlineTransport):
    """Keeps its objects in the class, where another instance finds them under the same id."""

    _copies: ClassVar[dict[str, list[bytes]]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        metadata.payload = self._copies.setdefault(obj_id, metadata.payload)
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        self._copies.pop(obj_id, None)


@breaks("X3")
class HasRoomForTwoObjects(SocketPullTransport):
    """Makes room for a new object by giving up the oldest, whether it was received or not."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        while len(self._objects) > 2:
            self._objects.pop(next(iter(self._objects)))
        return metadata
