"""What these transports share: one side only, everything in the metadata, nothing to free."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata


@dataclass
class PackedMetadata(TensorTransportMetadata):
    """What values are like, and each of them packed, with a checksum that tells what was damaged on the way."""

    packed: list[bytes] = field(default_factory=list, repr=False)
    checksums: list[int] = field(default_factory=list)


class PackingTransport(TensorTransportManager):
    """Packs each value into bytes where it is made, and unpacks it wherever it is received."""

    @abstractmethod
    def pack(self, value: Any) -> bytes:
        """The bytes of a value.

        Raises:
            ValueError: it cannot be carried.
        """

    @abstractmethod
    def unpack(self, packed: bytes) -> Any:
        """The value again."""

    @abstractmethod
    def meta(self, value: Any) -> tuple[Any, Any]:
        """Shape and dtype."""

    def tensor_transport_backend(self) -> str:
        return type(self).__name__

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return False

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> PackedMetadata:
        packed = [self.pack(value) for value in rdt_object]
        meta = [self.meta(value) for value in rdt_object]
        return PackedMetadata(meta, "cpu" if rdt_object else None, packed, [zlib.crc32(each) for each in packed])

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        metadata = tensor_transport_metadata
        if not isinstance(metadata, PackedMetadata) or len(metadata.packed) != len(metadata.tensor_meta):
            raise ValueError("this is not what extract_tensor_transport_metadata made")
        if [zlib.crc32(each) for each in metadata.packed] != metadata.checksums:
            raise ValueError(f"the metadata of object {obj_id} are damaged")
        return [self.unpack(packed) for packed in metadata.packed]

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        raise NotImplementedError("one-sided")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        pass

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        raise NotImplementedError("cannot abort")
