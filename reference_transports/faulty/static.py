"""Transports whose class is wrong before anything is transferred. See `reference_transports.faulty`."""

from __future__ import annotations

import pickle
import socket
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest
from ray.experimental.rdt.util import get_tensor_transport_manager

from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.socket_pull import SocketPullTransport


@breaks("S1")
class TakesAnotherTransportWhileItIsBuilt(InlineTransport):
    """Asks Ray for a transport to fall back on, while Ray holds its lock on transports to build this one."""

    def __init__(self) -> None:
        super().__init__()
        self._fallback = get_tensor_transport_manager("GLOO")


@breaks("S2")
class CanAbortOnceItListens(SocketPullTransport):
    """Tells what it can do at this moment, where Ray wants to know what kind of transport it is."""

    def can_abort_transport(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """True as soon as there is something to abort."""
        return self._listener._server is not None


@breaks("S3")
class NamesItselfByAProperty(InlineTransport):
    """Has a property where the interface has a method, as Ray's CUDA_IPC."""

    @property
    def tensor_transport_backend(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The name to register."""
        return "INLINE"


@breaks("S3")
class NamesItsAgent(InlineTransport):
    """Mistakes the name of the backend for a name of its own."""

    def tensor_transport_backend(self) -> str:
        return f"INLINE-{uuid.uuid4().hex[:8]}"


@breaks("S4")
class ReceivesWithoutTargetBuffers(InlineTransport):
    """Was written when receive had three arguments (Ray 2.54)."""

    def recv_multiple_tensors(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> list[Any]:
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata)


@breaks("S4")
class FreesWithoutTensors(InlineTransport):
    """Was written when garbage_collect had two arguments (Ray 2.54)."""

    def garbage_collect(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, obj_id: str, tensor_transport_meta: TensorTransportMetadata
    ) -> None:
        """Nothing to do."""


@breaks("S4")
class WaitsForSeconds(SocketPullTransport):
    """Calls the timeout by another name, and Ray passes it by name."""

    def wait_fetch_complete(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, fetch_request: FetchRequest, seconds: float = -1
    ) -> list[Any]:
        return super().wait_fetch_complete(fetch_request, seconds)


def _counting(lock: threading.Lock) -> type[TensorTransportManager]:
    class CountsBehindALock(InlineTransport):
        """Is made by a function and uses a lock of that function's, which cannot travel."""

        def garbage_collect(
            self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]
        ) -> None:
            with lock:
                super().garbage_collect(obj_id, tensor_transport_meta, tensors)

    return CountsBehindALock


CountsBehindALock = breaks("S5")(_counting(threading.Lock()))


@breaks("S6")
class GivesNoCommunicatorMetadata(InlineTransport):
    """Has nothing to say, and says None."""

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
        """Nothing."""


@dataclass
class _MetadataWithALock(InlineMetadata):
    lock: Any = field(default_factory=threading.Lock)


@breaks("S6")
class SendsALock(InlineTransport):
    """Has a lock in its metadata."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return _MetadataWithALock(metadata.tensor_meta, metadata.tensor_device, metadata.payload)


class _TransferError(Exception):
    def __init__(self, obj_id: str, reason: str) -> None:
        super().__init__(f"object {obj_id}: {reason}")


@breaks("S6")
class RaisesWhatCannotTravel(InlineTransport):
    """Raises an exception whose constructor does not take the arguments that Python keeps of it."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        try:
            return super().recv_multiple_tensors(
                obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
            )
        except ValueError as error:
            raise _TransferError(obj_id, str(error)) from None


@dataclass
class _MetadataOfAgents(InlineMetadata):
    agents: list[bytes] = field(default_factory=list)


@breaks("S7")
class RepeatsItsAgentForEveryTensor(InlineTransport):
    """Describes the source anew with every tensor."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        agent = pickle.dumps({"backend": "INLINE", "host": socket.gethostname(), "key": "0" * 64})
        agents = [agent + obj_id.encode() + bytes([index % 256]) for index in range(len(rdt_object))]
        return _MetadataOfAgents(metadata.tensor_meta, metadata.tensor_device, metadata.payload, agents)


@breaks("S8")
class KnowsOnlyActorsItHasMet(InlineTransport):
    """Looks an actor up among those that it has made a communicator for, of which there is none at first."""

    def __init__(self) -> None:
        super().__init__()
        self._met: dict[Any, bool] = {}

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        self._met |= dict.fromkeys((src_actor, dst_actor), True)
        return super().get_communicator_metadata(src_actor, dst_actor, backend)

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return self._met[actor]


@breaks("S8")
class ForgetsToAnswer(InlineTransport):
    """Looks whether it works, and does not return what it found."""

    def actor_has_tensor_transport(self, actor: Any) -> Any:
        _ = actor is not None


@breaks("S9")
class ListensFromTheBeginning(InlineTransport):
    """Opens a server when it is built, also in owners, which never serve anything."""

    def __init__(self) -> None:
        super().__init__()
        self._server = socket.create_server(("127.0.0.1", 0))
