"""Transports that are right unless two threads meet at one particular place. See `reference_transports.faulty`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports.faulty import breaks
from reference_transports.inline import InlineTransport
from reference_transports.socket_pull import SocketPullTransport


@breaks("X1")
class RemembersWhatItReceives(InlineTransport):
    """Keeps the object that it is at in itself, and a get may begin just while an argument arrives."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        self._metadata = tensor_transport_metadata
        return super().recv_multiple_tensors(obj_id, self._metadata, communicator_metadata, target_buffers)


@breaks("X1")
class NumbersInTwoSteps(InlineTransport):
    """Takes a number for each receive, in two steps, so that two of them may get the same one."""

    def __init__(self) -> None:
        self._next = 0
        self._landed: dict[int, list[Any]] = {}

    def _receive(self, *args: Any) -> int:
        tensors = super().recv_multiple_tensors(*args)
        number = self._next
        self._landed[number] = tensors
        self._next = number + 1
        return number

    def recv_multiple_tensors(self, obj_id: str, *args: Any) -> list[Any]:
        return self._landed.pop(self._receive(obj_id, *args))

    def fetch_multiple_tensors(self, obj_id: str, *args: Any) -> FetchRequest:
        return _Numbered(obj_id, [], self._receive(obj_id, *args))

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        assert isinstance(fetch_request, _Numbered)
        return self._landed.pop(fetch_request.number)


@dataclass
class _Numbered(FetchRequest):
    number: int


@breaks("X1")
class HasOneLandingPlace(InlineTransport):
    """Puts what it fetches where it also puts what it receives, and an argument may arrive before a wait."""

    def recv_multiple_tensors(self, obj_id: str, *args: Any) -> list[Any]:
        self._landed = super().recv_multiple_tensors(obj_id, *args)
        return self._landed

    def fetch_multiple_tensors(self, obj_id: str, *args: Any) -> FetchRequest:
        self.recv_multiple_tensors(obj_id, *args)
        return FetchRequest(obj_id, [])

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        return self._landed


@breaks("X1")
class LooksThenMakes(SocketPullTransport):
    """Makes its table when it first needs it, and a receive that looks into it may make it while an object is added."""

    def __init__(self) -> None:
        super().__init__()
        del self._objects

    def _make_table(self) -> None:
        if not hasattr(self, "_objects"):
            self._objects = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        self._make_table()
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def recv_multiple_tensors(self, obj_id: str, *args: Any) -> list[Any]:
        self._make_table()
        return super().recv_multiple_tensors(obj_id, *args)


@breaks("G4")
class CountsHoldersInTwoSteps(SocketPullTransport):
    """Serves tensors for as long as it counts holders of their memory, and counts without a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._holders: dict[int, int] = {}
        self._served: dict[int, list[str]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        if rdt_object:
            self._served.setdefault(id(rdt_object[0]), []).append(obj_id)
            self._count(id(rdt_object[0]), 1)
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        if not tensors:
            super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        elif self._count(id(tensors[0]), -1) <= 0:
            for served in self._served.pop(id(tensors[0]), [obj_id]):
                super().garbage_collect(served, tensor_transport_meta, tensors)

    def _count(self, memory: int, more: int) -> int:
        holders = self._holders.get(memory, 0) + more
        self._holders[memory] = holders
        return holders


@breaks("A5")
class AbortsWhoeverIsNext(SocketPullTransport):
    """Looks whether there is such a transfer, then has the next wait fail, which may be another's by then."""

    _given_up = False

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        if any(transfer.end.key == obj_id for transfer in list(self._fetching)):
            self._given_up = True
            super().abort_transport(obj_id, communicator_metadata)

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        try:
            tensors = super().wait_fetch_complete(fetch_request, timeout)
        except ConnectionAbortedError:
            self._given_up = False
            raise
        if self._given_up:
            self._given_up = False
            raise ConnectionAbortedError(f"transfer {fetch_request.obj_id} was aborted")
        return tensors


@breaks("A8")
class ForgetsAnAbortTooLate(SocketPullTransport):
    """Notes an abort for a fetch that has not begun, and the note of one that comes just after the end stays."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[str] = set()
        self._aborted: set[str] = set()

    def fetch_multiple_tensors(self, obj_id: str, *args: Any) -> FetchRequest:
        self._known.add(obj_id)
        if obj_id in self._aborted:
            raise ConnectionAbortedError(f"transfer {obj_id} was aborted")
        return super().fetch_multiple_tensors(obj_id, *args)

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        finally:
            self._known.discard(fetch_request.obj_id)
            self._aborted.discard(fetch_request.obj_id)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        if obj_id in self._known:
            super().abort_transport(obj_id, communicator_metadata)
            self._aborted.add(obj_id)
