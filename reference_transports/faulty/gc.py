"""Transports that free too little, too much, too early or too late."""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._layout import flat_bytes, landing
from reference_transports._segments import Span
from reference_transports._wire import SourceEnd
from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.shared_memory import SharedMemoryMetadata, SharedMemoryTransport
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport


@breaks("G1")
class KeepsARecordOfEveryObject(InlineTransport):
    """Remembers what it shared, and forgets to forget."""

    def __init__(self) -> None:
        self._shared: dict[str, int] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        self._shared[obj_id] = len(rdt_object)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


def _note(obj_id: str, known: list[str] = []) -> None:  # noqa: B006
    known.append(obj_id)


@breaks("G1")
class KeepsNamesInADefaultArgument(InlineTransport):
    """Notes what it describes in a list that only looks like a new one each time."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        _note(obj_id)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("G1")
class HasAFinalizerForEveryObject(InlineTransport):
    """Wants to be sure that each object is cleaned up with itself, at the latest, and never takes that back."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        weakref.finalize(self, len, obj_id)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("G1")
class ForgetsUnreceivedObjects(SocketPullTransport):
    """Cleans up after the receivers of an object, and so never after one that had none."""

    def __init__(self) -> None:
        super().__init__()
        self._received: set[str] = set()

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        self._received.add(obj_id)
        return super()._serve(end, obj_id)

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        if obj_id in self._received:
            self._received.discard(obj_id)
            super().garbage_collect(obj_id, tensor_transport_meta, tensors)


@breaks("G1")
class LeavesADescriptorOpen(SharedMemoryTransport):
    """Looks at the segment through a descriptor that it never closes."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        metadata = tensor_transport_metadata
        if isinstance(metadata, SharedMemoryMetadata):
            os.open(f"/proc/{metadata.pid}/fd/{metadata.fd}", os.O_RDONLY)
        return super().recv_multiple_tensors(obj_id, metadata, communicator_metadata, target_buffers)


@breaks("G1")
class NeverUnmaps(SharedMemoryTransport):
    """Maps each segment for the time in which its object lives, and then keeps the mapping to use it again."""

    def __init__(self) -> None:
        super().__init__()
        self._mappings: dict[str, mmap.mmap] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> SharedMemoryMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        self._mappings[obj_id] = mmap.mmap(metadata.fd, 0)
        return metadata


@breaks("G1")
class LeavesFilesInAFolder(InlineTransport):
    """Writes every object to a file in a folder of its own, and forgets which when the object is freed."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rdt_faulty_"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        (self._folder / obj_id).touch()
        return metadata


@breaks("G1")
class LeavesASocketPerTransfer(TcpTransport):
    """Opens a pair of sockets for each transfer, to be woken by, and never closes it."""

    def __init__(self) -> None:
        super().__init__()
        self._wakers: list[tuple[socket.socket, socket.socket]] = []

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        self._wakers.append(socket.socketpair())
        return super().recv_multiple_tensors(*args, **kwargs)


@breaks("G1")
class LeavesAThreadPerObject(InlineTransport):
    """Watches over each object on a thread, which nobody ends."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        freed = threading.Event()
        threading.Thread(target=freed.wait, name="watch-object", daemon=True).start()
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("G2")
class FreesByFirstTensor(InlineTransport):
    """Looks at the first tensor of the object, and there is none (ray#57603)."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        tensors[0].untyped_storage().data_ptr()


@breaks("G2")
class ExpectsAReceiver(SocketPullTransport):
    """Closes the account of an object's receivers, which was never opened if there was none."""

    def __init__(self) -> None:
        super().__init__()
        self._receivers: dict[str, int] = {}

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        self._receivers[obj_id] = self._receivers.get(obj_id, 0) + 1
        return super()._serve(end, obj_id)

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        del self._receivers[obj_id]


@breaks("G3")
class FreesByDescriptor(SharedMemoryTransport):
    """Frees whatever lies in the segment by now, not the object that it was asked to free."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        assert isinstance(tensor_transport_meta, SharedMemoryMetadata)
        for owner, segment in list(self._segments.items()):
            if segment.fd == tensor_transport_meta.fd:
                super().garbage_collect(owner, tensor_transport_meta, tensors)


@breaks("G3b")
class ComplainsAboutTheSecondFree(SharedMemoryTransport):
    """Takes a repeated call for an error."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        if obj_id not in self._segments:
            raise KeyError(f"object {obj_id} is not registered")
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)


@breaks("G4")
class FreesByAddress(SocketPullTransport):
    """Deregisters the memory of the tensors, which other objects lie in as well (ray#60509)."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)
        gone = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        with self._lock:
            for other, members in list(self._objects.items()):
                if gone & {tensor.untyped_storage().data_ptr() for tensor in members}:
                    del self._objects[other]


@breaks("G5")
class ReturnsTheSegment(SharedMemoryTransport):
    """Saves the copy: what it returns lies in the source's segment, which is soon used again."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        metadata = tensor_transport_metadata
        received = super().recv_multiple_tensors(obj_id, metadata, communicator_metadata, target_buffers)
        assert isinstance(metadata, SharedMemoryMetadata)
        fd = os.open(f"/proc/{metadata.pid}/fd/{metadata.fd}", os.O_RDWR)
        segment = mmap.mmap(fd, 0)
        os.close(fd)
        span = Span(metadata.tensor_meta)
        for index, (tensor, size, begin) in enumerate(zip(received, span.nbytes, span.offsets, strict=True)):
            if size and target_buffers is None:
                lent = torch.frombuffer(segment, dtype=torch.uint8, count=size, offset=begin)
                received[index] = lent.view(tensor.dtype).view(tensor.shape)
        return received


@breaks("G6")
class KeepsStorages(InlineTransport):
    """Keeps the memory that it has registered once, because registering is slow."""

    def __init__(self) -> None:
        self._registered: dict[int, Any] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        for tensor in rdt_object:
            storage = tensor.untyped_storage()
            self._registered[storage.data_ptr()] = storage
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@functools.lru_cache(maxsize=16)
def _size(tensor: torch.Tensor) -> int:
    return tensor.nbytes


@breaks("G6")
class RemembersByTensor(InlineTransport):
    """Looks up what it has computed before by the tensor itself, and so keeps the last few."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        sum(_size(tensor) for tensor in rdt_object)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


class _TrustsTheSegment(SharedMemoryTransport):
    """Reads a segment without a look at its token."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        metadata = tensor_transport_metadata
        assert isinstance(metadata, SharedMemoryMetadata)
        tensors = landing(metadata.tensor_meta, target_buffers)
        fd = os.open(f"/proc/{metadata.pid}/fd/{metadata.fd}", os.O_RDONLY)
        try:
            for tensor, offset in zip(tensors, Span(metadata.tensor_meta).offsets, strict=True):
                os.preadv(fd, [flat_bytes(tensor)], offset)
        finally:
            os.close(fd)
        return tensors


@dataclass
class _Later(FetchRequest):
    receive: Callable[[], list[Any]]


@breaks("G7")
class FetchesWhenWaitedFor(_TrustsTheSegment):
    """Does not begin before the wait, and does not ask whether the object is still there."""

    def fetch_multiple_tensors(self, *args: Any, **kwargs: Any) -> FetchRequest:
        return _Later(args[0], [], functools.partial(self.recv_multiple_tensors, *args, **kwargs))

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        assert isinstance(fetch_request, _Later)
        return fetch_request.receive()


@breaks("G9")
class ReadsWhateverIsThere(_TrustsTheSegment):
    """Does not notice that the object was freed and its segment given to another one."""


@breaks("G8")
class RegistersByAddress(InlineTransport):
    """Takes memory for registered if its address is, whatever its size is now (ray#65701)."""

    def __init__(self) -> None:
        self._registered: dict[int, int] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        for tensor in rdt_object:
            if tensor.nbytes > self._registered.setdefault(tensor.data_ptr(), tensor.nbytes):
                raise RuntimeError("the descriptor reaches beyond the registered memory")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("G10")
class WaitsForAReceiver(SocketPullTransport):
    """Gives an object that nobody has received a last chance."""

    def __init__(self) -> None:
        super().__init__()
        self._received: set[str] = set()

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        self._received.add(obj_id)
        return super()._serve(end, obj_id)

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        if obj_id not in self._received:
            threading.Event().wait(1.1)
        self._received.discard(obj_id)
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)


@breaks("G11")
class LooksForWorkWithoutAPause(InlineTransport):
    """Has a thread that would be quick to notice something, if there ever were something."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        weakref.finalize(self, self._ended.set)
        self._begun = False

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if not self._begun:
            self._begun = True
            threading.Thread(target=_spin, args=[self._ended], name="rdt-restless", daemon=True).start()
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


def _spin(ended: threading.Event) -> None:
    while not ended.is_set():
        pass
