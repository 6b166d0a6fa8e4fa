"""Transports that are right with one object in flight, and not with several. See `reference_transports.faulty`."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest
from torch.utils.weak import WeakTensorKeyDictionary

from reference_transports._layout import flat_bytes
from reference_transports._wire import SourceEnd
from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport


@breaks("O1")
class MatchesTransfersInOrderOfArrival(TcpTransport):
    """Sends to whichever receiver has connected first, whatever it came for."""

    def _receiver_of(self, transfer_id: str) -> SourceEnd | None:
        self._raise_if_aborted(transfer_id)
        first = next(iter(self._asking), "")
        return self._asking.pop(first, None)


@breaks("O1")
class MatchesObjectsBySize(SocketPullTransport):
    """Tells objects apart by the number of their bytes."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        self._objects[str(sum(tensor.nbytes for tensor in rdt_object))] = self._objects.pop(obj_id)
        return metadata

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        size = sum(shape.numel() * dtype.itemsize for shape, dtype in tensor_transport_metadata.tensor_meta)  # pyright: ignore[reportAttributeAccessIssue]
        return super().fetch_multiple_tensors(
            str(size), tensor_transport_metadata, communicator_metadata, target_buffers
        )


@breaks("O2")
class CompletesFetchesInOrder(InlineTransport):
    """Has one queue of fetches and takes every wait to be for the oldest."""

    def __init__(self) -> None:
        self._fetched: deque[list[Any]] = deque()

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        self._fetched.append(
            self.recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)
        )
        return FetchRequest(obj_id, [])

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        return self._fetched.popleft()


@breaks("O3")
class StartsAnewWithEveryFree(SocketPullTransport):
    """Becomes another version of itself with every free, and knows no receiver of an earlier one (ray#65905)."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        self._listener.secret = secrets.token_bytes(32)
        for end in list(self._listener._ends):
            end.abort()


@breaks("O4")
class LocksWhileItReceives(SocketPullTransport):
    """Holds its lock until what it receives is there, and needs the lock to serve what another one receives."""

    def __init__(self) -> None:
        super().__init__()
        self._busy = threading.Lock()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        with self._busy:
            return super().recv_multiple_tensors(
                obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
            )

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        with self._busy:
            return super()._serve(end, obj_id)


@breaks("O5")
class RemembersWhatLayThere(InlineTransport):
    """Copies a tensor once and finds the copy by address, whatever has been written there since."""

    def __init__(self) -> None:
        self._copies: dict[tuple[int, int], bytes] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        places = [(tensor.data_ptr(), tensor.nbytes) for tensor in rdt_object]
        metadata.payload = [
            self._copies.setdefault(place, copy) for place, copy in zip(places, metadata.payload, strict=True)
        ]
        return metadata


@breaks("O5")
class RemembersWhatTheCounterLetsIt(InlineTransport):
    """Keeps the copy that it made of a tensor until torch's counter of versions moves, which not all writes do."""

    def __init__(self) -> None:
        self._copies = WeakTensorKeyDictionary()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        return super().extract_tensor_transport_metadata(obj_id, [self._copy_of(tensor) for tensor in rdt_object])

    def _copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.is_inference():
            return tensor
        known = self._copies.get(tensor)
        if known is None or known[0] != tensor._version:
            known = tensor._version, tensor.detach().clone()
            self._copies[tensor] = known
        return known[1]


@breaks("O5")
class SendsTheFirstHalfAhead(SocketPullTransport):
    """Has the first half of each tensor travel with the metadata, and the rest when it is asked for."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        described: Any = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        described.heads = [bytes(flat_bytes(tensor)[: tensor.nbytes // 2]) for tensor in rdt_object]
        return described

    def fetch_multiple_tensors(self, obj_id: str, tensor_transport_metadata: Any, *args: Any) -> FetchRequest:
        request: Any = super().fetch_multiple_tensors(obj_id, tensor_transport_metadata, *args)
        request.heads = tensor_transport_metadata.heads
        return request

    def wait_fetch_complete(self, fetch_request: Any, timeout: float = -1) -> list[Any]:
        tensors = super().wait_fetch_complete(fetch_request, timeout)
        for tensor, head in zip(tensors, fetch_request.heads, strict=True):
            flat_bytes(tensor)[: len(head)] = head
        return tensors
