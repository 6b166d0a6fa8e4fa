"""Tensors through shared memory, between processes of one user on one Linux host.

The source packs an object once, whatever the layout of its tensors, into a segment. Receivers copy it from there into
their target buffers; without those, they map it: what they return lies in the segment itself, private to each of them
where it writes to it. The segment belongs to the object until Ray frees it, and to the receivers beyond that.

**A segment has no name.** It is a file in ``/dev/shm`` opened with ``O_TMPFILE``; a receiver opens it as
``/proc/<pid>/fd/<fd>`` of the source. So names cannot collide, the kernel lets nobody in but the same user (and root),
and when the last process that uses it ends, however it ends, nothing of it stays behind. It costs the source one file
descriptor for each live object, and a receiver none.

**A segment is used again**, because memory fresh from the kernel takes several times as long to fill. It carries a
token, behind the data; the metadata carries the same one. A receiver first locks the segment and then looks for the
token; the source first wipes the token and then, before it fills the segment with another object, asks whether anybody
has it locked. So what a receiver reads or views never changes, and one that comes late ends in an error and never in
another object's data. The kernel unlocks what a dead receiver had locked.

**All memory of a segment is there before it is mapped.** A full ``/dev/shm`` is an OSError at the source, where a mere
mapping would kill the process with SIGBUS.

**Views** are writable like copies: a page that is written to becomes the receiver's own. But any tensor of an object
keeps the whole segment alive, and cannot be resized. Small objects are copied, which costs less.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import Tensor, TensorMeta, address_of, describe, landing, lies_in_one_piece
from reference_transports._segments import Atlas, Mapping, Pool, Segment, Span, Window

_VIEW_BYTES = 1 << 20
"""From which size on an object is viewed. Measured with the first read and the release of what came: a copy into memory
that was used before costs less below 4 MiB and as much up to some 16, a copy into fresh memory always costs more."""
_MOST_VIEWS = 1 << 14
"""How many objects a receiver views at the same time. The kernel allows a process some 65,000 mappings in all."""


@dataclass
class SharedMemoryMetadata(TensorTransportMetadata):
    """The description of an object's tensors, and where their bytes are.

    Args:
        pid: the source process.
        fd: the segment's descriptor there.
        token: the last bytes of the segment, for as long as it holds this object.
    """

    pid: int = 0
    fd: int = -1
    token: bytes = field(default=b"", repr=False)


class SharedMemoryTransport(TensorTransportManager):
    """One-sided; carries plain CPU memory of torch and numpy. What is delivered is a snapshot from extract."""

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}  # by object id. Every access is a single step, and needs no lock.
        self._pool = Pool()
        self._atlas = Atlas()
        self._views = weakref.WeakSet[Mapping]()

    def tensor_transport_backend(self) -> str:
        """The name to register."""
        return "SHARED_MEMORY"

    @staticmethod
    def is_one_sided() -> bool:
        """True: the receiver reads without the source's help."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """False: no call ever waits for another process, so there is nothing to abort."""
        return False

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: it needs nothing that an actor could lack."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> SharedMemoryMetadata:
        """Describe the tensors and write them to a segment, once: called again, it gives the same segment again.

        Raises:
            ValueError: a tensor is not plain CPU memory.
            OSError: shared memory is full, or too many files are open.
        """
        tensor_meta = describe(rdt_object)
        segment = self._segments.get(obj_id)
        if segment is None:
            staged = self._stage(rdt_object, tensor_meta)
            segment = self._segments.setdefault(obj_id, staged)
            if segment is not staged:  # another thread was faster
                self._pool.give(staged)
        return SharedMemoryMetadata(
            tensor_meta=tensor_meta,
            tensor_device="cpu" if rdt_object else None,
            pid=os.getpid(),
            fd=segment.fd,
            token=segment.token,
        )

    def _stage(self, tensors: list[Any], tensor_meta: TensorMeta) -> Segment:
        span = Span(tensor_meta)
        segment = self._pool.take(span)
        try:
            _pack(tensors, segment.memory, span)
        except BaseException:
            segment.discard()
            raise
        segment.publish(span)
        return segment

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing: all that a receiver needs is in the metadata. Either actor may be None, for the driver."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """The tensors: in the target buffers if there are any, else in memory of their own or, if large, as a view.

        Raises:
            ValueError: the metadata is not what `extract_tensor_transport_metadata` made, or the buffers do not fit.
            RuntimeError: the object is gone, freed by its source or with it.
        """
        metadata = tensor_transport_metadata
        if not isinstance(metadata, SharedMemoryMetadata):
            raise ValueError(f"SHARED_MEMORY cannot read the metadata of another transport ({type(metadata).__name__})")
        span = Span(metadata.tensor_meta)
        try:
            window = Window(metadata.pid, metadata.fd, span, metadata.token)
        except OSError as error:
            gone = f"object {obj_id} is gone: its source (process {metadata.pid} of this host) freed it or ended"
            raise RuntimeError(f"{gone} ({error.strerror})") from None
        with window:
            if target_buffers is None and span.end >= _VIEW_BYTES and len(self._views) < _MOST_VIEWS:
                memory = window.own()
                self._views.add(memory)
                return _tensors_in(memory, metadata.tensor_meta, span)
            tensors = landing(metadata.tensor_meta, target_buffers)
            _unpack(self._atlas.memory(window), tensors, span)
        return tensors

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Never called: the transport is one-sided."""
        raise NotImplementedError("SHARED_MEMORY is one-sided")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Free the object's segment, to be used again; nothing if there is none (any more)."""
        segment = self._segments.pop(obj_id, None)
        if segment is not None:
            self._pool.give(segment)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Never called: `can_abort_transport` is False."""
        raise NotImplementedError("SHARED_MEMORY cannot abort")


def _pack(tensors: Sequence[Tensor], memory: Mapping, span: Span) -> None:
    """Copy tensors, whatever their layout, to where they lie in a segment, in one pass."""
    for tensor, offset, nbytes in zip(tensors, span.offsets, span.nbytes, strict=True):
        if lies_in_one_piece(tensor):
            ctypes.memmove(memory.address + offset, address_of(tensor), nbytes)
        elif isinstance(tensor, torch.Tensor):
            _tensor_at(np.asarray(memory), offset, tensor.shape, tensor.dtype).copy_(tensor.detach())
        else:
            np.copyto(_tensor_at(np.asarray(memory), offset, tensor.shape, tensor.dtype), tensor)


def _unpack(memory: Mapping, tensors: Sequence[Tensor], span: Span) -> None:
    """Copy tensors, each of which lies in one piece, from where they lie in a segment."""
    for tensor, offset, nbytes in zip(tensors, span.offsets, span.nbytes, strict=True):
        ctypes.memmove(address_of(tensor), memory.address + offset, nbytes)


def _tensors_in(memory: Mapping, tensor_meta: TensorMeta, span: Span) -> list[Any]:
    """Tensors that lie in the memory. Each has a storage of its own, and so is pickled with nothing but its bytes."""
    array = np.asarray(memory)
    return [_tensor_at(array, offset, *kind) for offset, kind in zip(span.offsets, tensor_meta, strict=True)]


def _tensor_at(memory: np.ndarray, offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor, or an array, that lies in the memory."""
    if not isinstance(dtype, torch.dtype):
        return np.ndarray(shape, dtype, memory, offset)
    counterpart = _in_numpy(dtype)
    if counterpart is not None:  # three times as fast as what follows, which makes a tensor of a tensor
        return torch.from_numpy(np.ndarray(shape, counterpart, memory, offset))
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=offset).view(shape)


@cache
def _in_numpy(dtype: torch.dtype) -> np.dtype | None:
    """The same dtype in numpy, if there is one."""
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return None
