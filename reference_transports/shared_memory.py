"""Tensors through shared memory, between processes of one user on one Linux host.

The source writes an object once, whatever the layout of its tensors, into a segment; every receiver reads it from
there, straight into the tensors that it returns. The segment belongs to the object until Ray frees it.

**A segment has no name.** It is a file in ``/dev/shm`` opened with ``O_TMPFILE``; a receiver opens it as
``/proc/<pid>/fd/<fd>`` of the source. So names cannot collide, the kernel lets nobody in but the same user (and root),
and when the source ends, however it ends, nothing of it stays behind. It costs the source one file descriptor for each
live object.

**A segment is written and read, never mapped.** On fresh memory ``writev`` beats a mapping, which takes a page fault
for every 4 KiB. A full ``/dev/shm`` is an OSError at the source, and a short segment an error at the receiver, where a
mapping would kill the process with SIGBUS. One call moves a thousand tensors.

**A segment carries a token**, behind the data; the metadata carries the same one. A receiver checks it before it
writes to its tensors and again after the last byte. That tells a segment from whatever else a recycled process id or
descriptor may lead to, and makes it safe to use a segment again: freeing wipes the token before anything else happens,
so a receiver that comes late, or is still reading, ends in an error and never in another object's data.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import describe, flat_bytes, landing, move_all, sizes

_TOKEN_BYTES = 16
_MOST_SPARES = 4
_LARGEST_SPARE = 64 << 20
"""How many segments of freed objects are kept for the next object of the same size, and how large they may be, in
bytes. Writing to memory that was in use before is two to four times as fast as to memory fresh from the kernel."""


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


class _Segment:
    """A nameless file in shared memory: the bytes of one object, then its token. Closed with its last reference."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.token = b""
        self.fd = os.open("/dev/shm", os.O_TMPFILE | os.O_EXCL | os.O_RDWR, 0o600)

    def fill(self, data: Iterable[memoryview]) -> None:
        """Write an object's bytes, `size` in all, and a new token.

        Raises:
            OSError: shared memory is full.
        """
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        os.lseek(self.fd, 0, os.SEEK_SET)
        try:
            move_all(partial(os.writev, self.fd), itertools.chain(data, [memoryview(self.token)]))
        except OSError as error:
            raise OSError(error.errno, f"cannot put {self.size} bytes into /dev/shm: {error.strerror}") from None

    def wipe(self) -> None:
        """Disown the bytes: from now on no receiver accepts them."""
        os.pwrite(self.fd, bytes(_TOKEN_BYTES), self.size)

    def close(self) -> None:
        """Give the memory back as soon as no receiver is reading it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    __del__ = close


class SharedMemoryTransport(TensorTransportManager):
    """One-sided; carries plain CPU memory of torch and numpy. What is delivered is a snapshot from extract."""

    def __init__(self) -> None:
        # Reentrant: Python's garbage collector may drop the last reference to an object of Ray's in the middle of any
        # line here, and with it call garbage_collect in the same thread.
        self._lock = threading.RLock()
        self._segments: dict[str, _Segment] = {}  # by object id
        self._spares: dict[int, _Segment] = {}  # by size, the oldest first

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
        with self._lock:
            segment = self._segments.get(obj_id)
        if segment is None:
            staged = self._stage(rdt_object, sum(sizes(tensor_meta)))
            with self._lock:
                segment = self._segments.setdefault(obj_id, staged)
            if segment is not staged:  # another thread was faster
                staged.close()
        return SharedMemoryMetadata(
            tensor_meta=tensor_meta,
            tensor_device="cpu" if rdt_object else None,
            pid=os.getpid(),
            fd=segment.fd,
            token=segment.token,
        )

    def _stage(self, tensors: list[Any], size: int) -> _Segment:
        with self._lock:
            segment = self._spares.pop(size, None)
        if segment is None:
            segment = _Segment(size)
        try:
            segment.fill(flat_bytes(tensor) for tensor in tensors)
        except BaseException:
            segment.close()  # at once: the traceback keeps a reference
            raise
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
        """The tensors, in the target buffers if there are any, else in memory of their own.

        Raises:
            ValueError: the metadata is not what `extract_tensor_transport_metadata` made, or the buffers do not fit.
            RuntimeError: the object is gone, freed by its source or with it.
        """
        metadata = tensor_transport_metadata
        if not isinstance(metadata, SharedMemoryMetadata):
            raise ValueError(f"SHARED_MEMORY cannot read the metadata of another transport ({type(metadata).__name__})")
        size = sum(sizes(metadata.tensor_meta))
        gone = f"object {obj_id} is gone: its source (process {metadata.pid} of this host) freed it or ended"
        try:
            fd = os.open(f"/proc/{metadata.pid:d}/fd/{metadata.fd:d}", os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise RuntimeError(f"{gone} ({error.strerror})") from None
        try:
            if not _holds(fd, metadata.token, size):
                raise RuntimeError(gone)
            tensors = landing(metadata.tensor_meta, target_buffers)
            move_all(partial(os.readv, fd), map(flat_bytes, tensors))
            if not _holds(fd, metadata.token, size):
                raise RuntimeError(gone)
        finally:
            os.close(fd)
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
        """Free the object's segment, or keep it as a spare; nothing if there is none (any more)."""
        with self._lock:
            segment = self._segments.pop(obj_id, None)
        if segment is None:
            return
        segment.wipe()
        if segment.size > _LARGEST_SPARE:
            segment.close()
        else:
            with self._lock:
                self._spares[segment.size] = segment
                if len(self._spares) > _MOST_SPARES:
                    self._spares.pop(next(iter(self._spares)), None)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Never called: `can_abort_transport` is False."""
        raise NotImplementedError("SHARED_MEMORY cannot abort")


def _holds(fd: int, token: bytes, size: int) -> bool:
    """Whether the file is a segment that still holds the object with this token, of `size` bytes exactly."""
    try:
        return len(token) == _TOKEN_BYTES and os.pread(fd, _TOKEN_BYTES + 1, size) == token != bytes(_TOKEN_BYTES)
    except OSError:  # not even a file
        return False
