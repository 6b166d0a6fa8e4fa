"""Transports that lose, mix up or hold up objects on their way from one actor to others."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._wire import SourceEnd
from reference_transports.faulty import breaks
from reference_transports.faulty.gc import ReturnsTheSegment
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport


@breaks("L1")
class ReadsItsOwnStore(InlineTransport):
    """Looks for the object in a store of its own, as when it was only ever tried with one actor."""

    def __init__(self) -> None:
        self._store: dict[str, InlineMetadata] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        self._store[obj_id] = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return self._store[obj_id]

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        return super().recv_multiple_tensors(obj_id, self._store[obj_id], communicator_metadata, target_buffers)

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        self._store.pop(obj_id, None)


@breaks("L2")
class ServesOneReceiver(SocketPullTransport):
    """Takes an object out of its registry when it is read for the first time (ray#54808)."""

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        served = super()._serve(end, obj_id)
        self._objects.pop(obj_id, None)
        return served


@breaks("L3")
class ReceivesAnObjectOnce(InlineTransport):
    """Opens a mailbox for each object that it receives, and finds it there the next time."""

    def __init__(self) -> None:
        self._mailboxes: set[str] = set()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        if obj_id in self._mailboxes:
            raise FileExistsError(f"mailbox of object {obj_id}")
        self._mailboxes.add(obj_id)
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("L4")
class RemembersTheLatest(SocketPullTransport):
    """Serves the 256 objects that were described last, which had always been enough."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        with self._lock:
            while len(self._objects) > 256:
                del self._objects[next(iter(self._objects))]
        return metadata


@breaks("L4")
class NamesObjectsByTheBeginningOfTheirIds(SocketPullTransport):
    """Shortens ids to 20 digits, which are the same for all that one task puts (the example in Ray's documentation)."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        return super().extract_tensor_transport_metadata(obj_id[:20], rdt_object)

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        return super().fetch_multiple_tensors(
            obj_id[:20], tensor_transport_metadata, communicator_metadata, target_buffers
        )

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id[:20], tensor_transport_meta, tensors)


@breaks("L5")
class RegistersMemoryOnce(InlineTransport):
    """Refuses memory that is registered already (ray#60509)."""

    def __init__(self) -> None:
        self._registered: dict[str, set[int]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        memories = {tensor.untyped_storage().data_ptr() for tensor in rdt_object}
        if any(memories & others for known, others in self._registered.items() if known != obj_id):
            raise ValueError("the memory is already registered")
        self._registered[obj_id] = memories
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        self._registered.pop(obj_id, None)


@breaks("L5")
class TakesAViewForItsBase(InlineTransport):
    """Keeps one copy for each memory, whatever part of it the next object shows (ray#61122)."""

    def __init__(self) -> None:
        self._copies: dict[int, bytes] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        for index, tensor in enumerate(rdt_object):
            size = tensor.nbytes
            copy = self._copies.setdefault(tensor.untyped_storage().data_ptr(), metadata.payload[index])
            metadata.payload[index] = copy[:size].ljust(size, b"\0")
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        for tensor in tensors:
            self._copies.pop(tensor.untyped_storage().data_ptr(), None)


@breaks("L6")
class WaitsUntilNothingReceivedIsInUse(InlineTransport):
    """Lets nobody register while received tensors are alive, which a chain of actors has to."""

    def __init__(self) -> None:
        self._in_use = 0
        self._changed = threading.Condition()

    def _no_longer_in_use(self) -> None:
        with self._changed:
            self._in_use -= 1
            self._changed.notify_all()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        with self._changed:
            self._changed.wait_for(lambda: not self._in_use)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        received = super().recv_multiple_tensors(
            obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
        )
        for tensor in received:
            with self._changed:
                self._in_use += 1
            weakref.finalize(tensor, self._no_longer_in_use)
        return received


@breaks("L7")
class RetriesForEver(InlineTransport):
    """Takes every refusal for a passing trouble and tries again."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        while True:
            try:
                return super().extract_tensor_transport_metadata(obj_id, rdt_object)
            except ValueError:
                threading.Event().wait(0.1)


@breaks("L8")
class PublishesWhenItSends(SocketPullTransport):
    """Calls itself one-sided, and offers an object to receivers when it is asked to send it."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        self._unpublished = self._objects.pop(obj_id), obj_id
        return metadata

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        tensors, obj_id = self._unpublished
        self._objects[obj_id] = tensors


@breaks("L9")
class NamesBothActors(InlineTransport):
    """Wants to know who transfers to whom, and nobody is there in a get or in the driver."""

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        _ = src_actor._actor_id.hex(), dst_actor._actor_id.hex()
        return CommunicatorMetadata()


@breaks("L10", across_processes=True)
class AsksTheReceiver(InlineTransport):
    """Asks the receiver whether it is ready, and has the owner wait for the answer."""

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        if isinstance(dst_actor, ActorHandle):
            ray.get(dst_actor.__ray_call__.remote(type))
        return super().get_communicator_metadata(src_actor, dst_actor, backend)


@breaks("L11")
class MakesProgressInItsCallsOnly(SocketPullTransport):
    """Has no thread of its own: a receiver is served when the source next uses the transport, or gives up."""

    def __init__(self) -> None:
        super().__init__()
        self._progress = threading.Condition()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        with self._progress:
            self._progress.notify_all()
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        with self._progress:
            used = self._progress.wait(0.1)
        if used:
            return super()._serve(end, obj_id)
        end.refuse()
        return True


@breaks("L12")
class FailsOnTheFirstUse(InlineTransport):
    """Begins to set itself up when it is first used, and does not wait until that is done."""

    def __init__(self) -> None:
        self._ready = False

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        if not self._ready:
            self._ready = True
            raise RuntimeError("the agent is not ready")
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


@breaks("L13")
class SendsTensorsOnce(TcpTransport):
    """Drops what it knows of a tensor when it has sent it (ray#55628)."""

    def __init__(self) -> None:
        super().__init__()
        self._unsent: set[int] = set()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        self._unsent |= {id(tensor) for tensor in rdt_object}
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        for tensor in tensors:
            self._unsent.remove(id(tensor))
        super().send_multiple_tensors(tensors, tensor_transport_metadata, communicator_metadata)


@breaks("L14")
class EmptiesTheSegmentItReturns(ReturnsTheSegment):
    """What it returns lies in the source's segment, which is emptied with the last reference to the object."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        segment = self._segments.get(obj_id)
        if segment is not None:
            ctypes.memset(segment.memory.address, 0, segment.size)
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
