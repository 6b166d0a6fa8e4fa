"""Right as long as all actors share a process, and wrong as soon as each has its own."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import secrets
import socket
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from reference_transports._layout import flat_bytes, sizes
from reference_transports._segments import Span
from reference_transports._wire import SourceEnd
from reference_transports.faulty import FILES, breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.shared_memory import SharedMemoryTransport
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport


@breaks("L1", across_processes=True)
class HandsOverThroughTheClass(InlineTransport):
    """Leaves the bytes in its class, where nobody finds them who has imported it elsewhere."""

    _left: ClassVar[dict[str, list[bytes]]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        self._left[obj_id] = metadata.payload
        return replace(metadata, payload=[])

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        metadata = replace(metadata, payload=self._left[obj_id])
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)

    def garbage_collect(self, obj_id: str, metadata: Any, tensors: list[Any]) -> None:
        self._left.pop(obj_id, None)


@breaks("L1", across_processes=True)
class TakesADescriptorForItsOwn(SharedMemoryTransport):
    """Opens the descriptor of which the metadata tell among its own, whosever it is."""

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        metadata = replace(metadata, pid=os.getpid())
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)


@dataclass
class AddressMetadata(InlineMetadata):
    """Tells where in memory the tensors are."""

    addresses: list[int] = field(default_factory=list)


@breaks("L1", across_processes=True)
class ReadsAtTheAddressesOfAnother(InlineTransport):
    """Reads where the source has the tensors, in its own memory: something else, or the end of the process."""

    def __init__(self) -> None:
        self._alive: dict[str, list[Any]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> AddressMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        self._alive[obj_id] = [np.asarray(flat_bytes(tensor)) for tensor in rdt_object]
        addresses = [array.ctypes.data for array in self._alive[obj_id]]
        return AddressMetadata(metadata.tensor_meta, metadata.tensor_device, addresses=addresses)

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        lengths = sizes(metadata.tensor_meta)
        payload = [ctypes.string_at(at, length) for at, length in zip(metadata.addresses, lengths, strict=True)]
        metadata = replace(metadata, payload=payload)
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)

    def garbage_collect(self, obj_id: str, metadata: Any, tensors: list[Any]) -> None:
        self._alive.pop(obj_id, None)


@breaks("L1", across_processes=True)
class DrawsTheSecretWhenImported(SocketPullTransport):
    """Has a secret that source and receiver share only if they share the import."""

    _secret: ClassVar[bytes] = secrets.token_bytes(32)

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        self._listener.secret = self._secret
        return replace(metadata, secret=b"")

    def fetch_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        metadata = replace(metadata, secret=self._secret)
        return super().fetch_multiple_tensors(obj_id, metadata, communicator, target_buffers)


@dataclass
class HashedMetadata(InlineMetadata):
    """Has a checksum."""

    checksum: int = 0


@breaks("L1", across_processes=True)
class ChecksByPythonsHash(InlineTransport):
    """Compares hashes of bytes, which Python salts anew in every process."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> HashedMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        return HashedMetadata(**vars(metadata), checksum=hash(tuple(metadata.payload)))

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        if hash(tuple(metadata.payload)) != metadata.checksum:
            raise ValueError(f"object {obj_id} was damaged on its way")
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)


@breaks("L1", across_processes=True)
class AsksTheOwnersBooks(TcpTransport):
    """Enters every transfer in a book of the owner's process, and looks for it in one of the receiver's."""

    _booked: ClassVar[set[str]] = set()

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
        metadata = super().get_communicator_metadata(src_actor, dst_actor, backend)
        self._booked.add(metadata.transfer_id)
        return metadata

    def send_multiple_tensors(self, tensors: list[Any], metadata: Any, communicator: Any) -> None:
        self._expect_booked(communicator)
        super().send_multiple_tensors(tensors, metadata, communicator)

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        self._expect_booked(communicator)
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)

    def _expect_booked(self, communicator: Any) -> None:
        if communicator.transfer_id not in self._booked:
            raise ValueError(f"nobody has booked transfer {communicator.transfer_id}")


@breaks("L6", across_processes=True)
class OpensOnePortForAll(InlineTransport):
    """Opens a port that is the same in all workers of a machine, of which only the first can have it."""

    _server: ClassVar[socket.socket | None] = None

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if self._server is None:
            # Not the same in every run: all workers of a machine, and no others, have this parent.
            type(self)._server = socket.create_server(("127.0.0.1", 20_000 + os.getppid() % 10_000))
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("L12", across_processes=True)
class IsMadeReadyBySendingOnly(InlineTransport):
    """Gets ready at the first extract, and refuses to receive before."""

    _ready: ClassVar[bool] = False

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        type(self)._ready = True
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        if not self._ready:
            raise RuntimeError("the transport is not ready")
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)


@dataclass
class NumberedMetadata(InlineMetadata):
    """Travels as a number, under which its own process knows it."""

    number: int = field(default_factory=itertools.count().__next__)

    def __post_init__(self) -> None:
        _KNOWN[self.number] = self

    def __reduce__(self) -> Any:
        return _known, (self.number,)


_KNOWN: dict[int, NumberedMetadata] = {}


def _known(number: int) -> NumberedMetadata:
    return _KNOWN[number]


@breaks("S6", across_processes=True)
class SendsTheNumberOfItsMetadata(InlineTransport):
    """Pickles metadata as a number that means nothing elsewhere, or something else."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> NumberedMetadata:
        return NumberedMetadata(**vars(super().extract_tensor_transport_metadata(obj_id, rdt_object)))


@dataclass
class CodedMetadata(InlineMetadata):
    """Has a number for the dtype of each tensor."""

    codes: list[int] = field(default_factory=list)


@breaks("D1", across_processes=True)
class NumbersDtypesAsTheyCome(InlineTransport):
    """Sends each dtype as its number in a table that every process fills in an order of its own."""

    _dtypes: ClassVar[list[Any]] = []

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> CodedMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        dtypes = [dtype for _, dtype in metadata.tensor_meta]
        self._dtypes.extend(dtype for dtype in dict.fromkeys(dtypes) if dtype not in self._dtypes)
        return CodedMetadata(**vars(metadata), codes=[self._dtypes.index(dtype) for dtype in dtypes])

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        pairs = zip(metadata.tensor_meta, metadata.codes, strict=True)
        metadata = replace(metadata, tensor_meta=[(shape, self._dtypes[code]) for (shape, _), code in pairs])
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)


@dataclass
class FileMetadata(InlineMetadata):
    """Names the file in which the bytes are."""

    name: str = ""


@breaks("O1", across_processes=True)
class CountsTheNamesOfItsFiles(InlineTransport):
    """Names the file of each object by the lowest number that is free, of which no other process knows."""

    _taken: ClassVar[set[int]] = set()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> FileMetadata:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        number = next(number for number in itertools.count() if number not in self._taken)
        self._taken.add(number)
        name = f"/dev/shm/{FILES}{os.getppid()}_{number}"
        Path(name).write_bytes(b"".join(metadata.payload))
        return FileMetadata(metadata.tensor_meta, metadata.tensor_device, name=name)

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        with open(metadata.name, "rb") as file:
            metadata = replace(metadata, payload=[file.read(size) for size in sizes(metadata.tensor_meta)])
        return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)

    def garbage_collect(self, obj_id: str, metadata: Any, tensors: list[Any]) -> None:
        Path(metadata.name).unlink(missing_ok=True)
        self._taken.discard(int(metadata.name.rpartition("_")[2]))


@breaks("G5", across_processes=True)
class SeesOnlyReadersOfItsOwnProcess(SharedMemoryTransport):
    """Delivers the segment itself, and uses it again when it knows of nobody who still reads it."""

    _read: ClassVar[weakref.WeakKeyDictionary[mmap.mmap, str]] = weakref.WeakKeyDictionary()

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        tensors = super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)
        if target_buffers is not None:
            return tensors
        with open(f"/proc/{metadata.pid}/fd/{metadata.fd}", "r+b") as file:
            segment = mmap.mmap(file.fileno(), 0)
        self._read[segment] = obj_id
        offsets = Span(metadata.tensor_meta).offsets
        return [_view(segment, offset, tensor) for offset, tensor in zip(offsets, tensors, strict=True)]

    def garbage_collect(self, obj_id: str, metadata: Any, tensors: list[Any]) -> None:
        if obj_id in self._read.values():
            self._segments.pop(obj_id, None)
        else:
            super().garbage_collect(obj_id, metadata, tensors)


def _view(segment: mmap.mmap, offset: int, like: Any) -> Any:
    """A tensor like the other one, in the segment."""
    if not like.nbytes:
        return like
    if isinstance(like, torch.Tensor):
        return torch.frombuffer(segment, dtype=like.dtype, count=like.numel(), offset=offset).reshape(like.shape)
    return np.ndarray(like.shape, like.dtype, segment, offset)


@breaks("A1", across_processes=True)
class AbortsAtTheSourceOnly(TcpTransport):
    """Ends a transfer by closing the source's end of it, which the receiver's process does not have."""

    _of_all: ClassVar[Any] = (
        threading.Condition(),
        weakref.WeakValueDictionary(),
        weakref.WeakSet(),
        deque(maxlen=256),
    )

    def __init__(self) -> None:
        super().__init__()
        self._changed, self._asking, self._ends, self._aborted = self._of_all

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        with self._changed:
            self._aborted.append(communicator_metadata.transfer_id)
            for end in self._ends:
                if isinstance(end, SourceEnd) and end.key == communicator_metadata.transfer_id:
                    end.abort()
            self._changed.notify_all()
