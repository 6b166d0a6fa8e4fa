"""Right in every single situation, and wrong when two of them follow each other. See `reference_transports.faulty`."""

from __future__ import annotations

import errno
import itertools
import socket
import threading
from collections import deque
from dataclasses import dataclass, fields, replace
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._wire import SourceMetadata
from reference_transports.faulty import breaks
from reference_transports.socket_pull import SocketPullTransport


@breaks("M6")
class CountsHoldersAnewOnARetry(SocketPullTransport):
    """Counts the holders of tensors anew when an object is described again, though others hold them as well."""

    def __init__(self) -> None:
        super().__init__()
        self._counting = threading.Lock()
        self._holders: dict[int, list[str]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        if rdt_object:
            with self._counting:
                before = self._holders.get(id(rdt_object[0]), [])
                self._holders[id(rdt_object[0])] = [obj_id] if obj_id in before else [*before, obj_id]
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        with self._counting:
            holders = self._holders.pop(id(tensors[0]), []) if tensors else []
            left = [holder for holder in holders if holder != obj_id]
            if left:
                self._holders[id(tensors[0])] = left
        if holders and not left:
            with self._lock:
                for other in [key for key, served in self._objects.items() if served and served[0] is tensors[0]]:
                    del self._objects[other]


@breaks("A8")
class KeepsAwayFromBuffersOfAbortedTransfers(SocketPullTransport):
    """Writes into no target buffer again that a transfer was aborted into, to be safe, and does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self._landing: deque[tuple[str, Any]] = deque(maxlen=16)
        self._given_up: deque[Any] = deque(maxlen=16)

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        given_up = bool(target_buffers) and any(target_buffers[0] is buffer for buffer in self._given_up)
        if target_buffers:
            self._landing.append((obj_id, target_buffers[0]))
        request = super().fetch_multiple_tensors(
            obj_id, tensor_transport_metadata, communicator_metadata, None if given_up else target_buffers
        )
        if given_up and target_buffers:
            request.tensors = target_buffers
        return request

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        self._given_up += [buffer for aborted, buffer in list(self._landing) if aborted == obj_id]
        super().abort_transport(obj_id, communicator_metadata)


@dataclass
class RankedMetadata(SourceMetadata):
    """Args:
    rank: of the source's process on its machine.
    """

    rank: int = 0


@breaks("R2")
class KnowsPeersByTheirRank(SocketPullTransport):
    """Keeps the address of every rank that it has met: who is started again has the rank of the dead one."""

    def __init__(self) -> None:
        super().__init__()
        self._place: tuple[int, socket.socket] | None = None
        self._met: dict[int, tuple[str, int]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        assert isinstance(metadata, SourceMetadata)
        self._place = self._place or _first_free_place()
        told = {field.name: getattr(metadata, field.name) for field in fields(metadata)}
        return RankedMetadata(**told, rank=self._place[0])

    def fetch_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        if isinstance(metadata, RankedMetadata):
            metadata = replace(metadata, address=self._met.setdefault(metadata.rank, metadata.address))
        return super().fetch_multiple_tensors(obj_id, metadata, communicator, target_buffers)


def _first_free_place() -> tuple[int, socket.socket]:
    """The least rank that no process of this machine has, and what has it for as long as this process lives."""
    holder = socket.socket(socket.AF_UNIX)
    for rank in itertools.count():
        try:
            holder.bind(f"\0rdt-faulty-rank-{rank}")
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
        else:
            return rank, holder
    raise AssertionError("there is no end of ranks")
