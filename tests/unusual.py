"""Transports that keep the contract in a way that is rare: none may be told to break anything."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import math
import uuid
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.socket_pull import SocketPullTransport


@dataclass
class _Signed(InlineMetadata):
    """Metadata that tell who made them."""

    maker: str = ""


class NeverToItself(InlineTransport):
    """Cannot receive what it sent, as GPU events of other processes cannot be opened by their own.

    Ray never asks for it: a process that has an object takes it from there.
    """

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        plain = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        parts = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return _Signed(**parts, maker=self._name)

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        if getattr(tensor_transport_metadata, "maker", "") == self._name:
            raise RuntimeError(f"{obj_id} was sent by the process that is to receive it")
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)


class NeverPassesOn(NeverToItself):
    """And refuses buffers, and to send what it has received, as torch does with GPU memory of another process."""

    def __init__(self) -> None:
        super().__init__()
        self._received: list[weakref.ref[Any]] = []

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        alive = [tensor for each in list(self._received) if (tensor := each()) is not None]
        if {_memory(tensor) for tensor in alive} & {_memory(tensor) for tensor in rdt_object} - {0}:
            raise ValueError("a tensor was received from another process: clone it first")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        if target_buffers is not None:
            raise ValueError("target buffers are not supported")
        tensors = super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata)
        alive = [each for each in self._received if each() is not None]
        self._received = [*alive, *map(weakref.ref, tensors)]
        return tensors


class RemembersLivingTensors(InlineTransport):
    """Has a record of each tensor that it described, for as long as that lives."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        for tensor in rdt_object:
            key = id(tensor)
            self._known[key] = weakref.ref(tensor, lambda _, key=key: self._known.pop(key, None))
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


class RefusesSomeBuffersLate(SocketPullTransport):
    """Receives into a single target buffer, and refuses several, when they are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._refused: weakref.WeakValueDictionary[int, FetchRequest] = weakref.WeakValueDictionary()

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        several = target_buffers is not None and len(target_buffers) > 1
        into = None if several else target_buffers
        request = super().fetch_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, into)
        if several:
            self._refused[id(request)] = request
        return request

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        if id(fetch_request) in self._refused:
            raise ValueError("several target buffers are not supported")
        return super().wait_fetch_complete(fetch_request, timeout)


class ReceivesIntoAnArena(InlineTransport):
    """Hands out parts of one memory, one behind the other, until that is used up."""

    SIZE: ClassVar[int] = 1 << 25

    def __init__(self) -> None:
        self._arena, self._used = torch.empty(0, dtype=torch.uint8), 0

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        if target_buffers is None:
            target_buffers = [self._part(*meta) for meta in tensor_transport_metadata.tensor_meta]
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)

    def _part(self, shape: Any, dtype: Any) -> torch.Tensor:
        nbytes = math.prod(shape) * dtype.itemsize
        if self._used + nbytes > len(self._arena):
            self._arena, self._used = torch.empty(max(self.SIZE, nbytes), dtype=torch.uint8), 0
        part = self._arena[self._used : self._used + nbytes]
        self._used += -(-nbytes // 64) * 64
        return part.view(dtype).view(shape) if nbytes else torch.empty(shape, dtype=dtype)


class ReceivesIntoSmallArenas(ReceivesIntoAnArena):
    """Of a size that the C library keeps for later when it has become free, some for each thread."""

    SIZE = 4 << 20


class CleansUpAtExit(InlineTransport):
    """Would clean up at exit what has not been freed by then."""

    def __init__(self) -> None:
        self._at_exit: dict[str, Any] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if obj_id not in self._at_exit:
            self._at_exit[obj_id] = atexit.register(functools.partial(len, obj_id))
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[Any]) -> None:
        atexit.unregister(self._at_exit.pop(obj_id, None))
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)


def _memory(tensor: Any) -> int:
    """The address of the memory that a tensor lies in; 0 if it has none."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided and tensor.numel() else 0


class HasLittleRoom(InlineTransport):
    """Has room for one object at a time, and says so when there is one more."""

    ROOM = 1

    def __init__(self) -> None:
        self._present: set[str] = set()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        if obj_id not in self._present and len(self._present) == self.ROOM:
            raise MemoryError(f"there is room for {self.ROOM} object only")
        self._present.add(obj_id)
        return metadata

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        self._present.discard(obj_id)


class GivesNoRoomBack(HasLittleRoom):
    """No rare way to keep the contract, but a mistake that says the same."""

    ROOM = 20

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        pass


class DescribesOnce(HasLittleRoom):
    """Has no room to describe an object again that it shares already: a mistake as well."""

    ROOM = 1_000

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if obj_id in self._present:
            raise MemoryError(f"{obj_id} is here already")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)
