"""Wrong only in some places: where source and destination are on different nodes, or in the driver."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import ray

from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport


@dataclass
class WithNode(InlineMetadata):
    """Knows where it was made."""

    node_id: str = ""


class KnowsNodes(InlineTransport):
    """Good, and tells receivers where an object is."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> WithNode:
        found = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return WithNode(**vars(found), node_id=here())


def here() -> str:
    """The node of this process."""
    return ray.get_runtime_context().get_node_id()


@breaks("R8")
class WaitsForAnotherNode(KnowsNodes):
    """Waits for a local file of the source that never appears on another node."""

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        if tensor_transport_metadata.node_id != here():
            threading.Event().wait()
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("R8")
class ZeroesFromAnotherNode(KnowsNodes):
    """Maps an address of the source, where on another node there is other memory."""

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        tensors = super().recv_multiple_tensors(
            obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
        )
        return [tensor.zero_() for tensor in tensors] if tensor_transport_metadata.node_id != here() else tensors


@breaks("L12", across_processes=True)
class AsksForThePlaceOfItsActor(InlineTransport):
    """Describes tensors by what Ray has given to the actor that has them, and the driver is none."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is None:
            raise IndexError("list index out of range")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)
