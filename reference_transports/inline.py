"""The smallest legal transport: the bytes travel in the metadata.

Ray carries an object's metadata to every receiver anyway, so nothing is set up, kept or freed, and any two processes
that Ray connects can exchange tensors. The price: every byte passes through the owner and is pickled on the way. Good
for small objects, and for seeing what a transport is made of.

What is delivered is a snapshot: the bytes as they were when the task returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import describe, flat_bytes, landing, sizes


@dataclass
class InlineMetadata(TensorTransportMetadata):
    """The description of an object's tensors, and the tensors themselves.

    Args:
        payload: the bytes of each tensor, in C order.
    """

    payload: list[bytes] = field(default_factory=list, repr=False)


class InlineTransport(TensorTransportManager):
    """One-sided, stateless; carries plain CPU memory of torch and numpy between any two processes."""

    def tensor_transport_backend(self) -> str:
        """The name to register."""
        return "INLINE"

    @staticmethod
    def is_one_sided() -> bool:
        """True: the receiver needs nothing from the source."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """False: no call ever waits for anybody, so there is nothing to abort."""
        return False

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: it works wherever Ray does."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        """Describe and copy the tensors. Called again for the same object, it gives the same again.

        Raises:
            ValueError: a tensor is not plain CPU memory.
        """
        return InlineMetadata(
            tensor_meta=describe(rdt_object),
            tensor_device="cpu" if rdt_object else None,
            payload=[bytes(flat_bytes(tensor)) for tensor in rdt_object],
        )

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing: neither side needs to know the other. Either actor may be None, which stands for the driver."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """The tensors, in the target buffers if there are any, else in memory of their own.

        Raises:
            ValueError: the metadata is not what `extract_tensor_transport_metadata` made, or the buffers do not fit.
        """
        metadata = tensor_transport_metadata
        if not isinstance(metadata, InlineMetadata):
            raise ValueError(f"INLINE cannot read the metadata of another transport ({type(metadata).__name__})")
        if [len(data) for data in metadata.payload] != sizes(metadata.tensor_meta):
            raise ValueError(f"garbled metadata of object {obj_id}: the payload does not fit the shapes and dtypes")
        tensors = landing(metadata.tensor_meta, target_buffers)
        for tensor, data in zip(tensors, metadata.payload, strict=True):
            flat_bytes(tensor)[:] = data
        return tensors

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Never called: the transport is one-sided."""
        raise NotImplementedError("INLINE is one-sided")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Nothing to do: the source keeps nothing."""

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Never called: `can_abort_transport` is False."""
        raise NotImplementedError("INLINE cannot abort")
