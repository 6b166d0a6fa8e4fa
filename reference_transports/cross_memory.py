"""Tensors straight out of the source's memory, between processes of one user on one Linux host.

The receiver reads the source's tensors with ``process_vm_readv``: one copy, from memory to memory, made by the kernel
while the source does something else. Nothing is staged, and nothing is set up that could stay behind.

**What is delivered is live memory**: the bytes as they are when they are read, not as they were at extract. The source
keeps the memory until Ray frees the object; as with every transport that reads memory (RDMA, CUDA IPC), nobody may
meanwhile resize a tensor's storage. A tensor that does not lie in one piece, such as a transposed one, is packed at
extract, once for all receivers, and they read the copy: its elements one by one would be too many pieces.

**An object has a token**, which lies in the source's memory as long as the tensors do; the metadata carries the same
one. A receiver looks for it before the first and after the last byte. That tells the source from any other process
that its process id may lead to: a later one, or one of another host or container. Freeing wipes the token before it
lets go of the tensors, so a receiver that comes late, or is still reading, ends in an error and never with memory that
is used again.

**Who may read** is for the kernel to say, by the rules of ``ptrace``: the same user, and root. Where the Yama module
narrows that to a process's ancestors (``kernel.yama.ptrace_scope`` 1, the default of some distributions), the source
lifts it for itself, with the call that exists for this: from its first extract on, other processes of its user may
read its memory, and debug it, as they could without Yama. A higher ``ptrace_scope``, a source with other privileges
than the receiver, or a container's filter still forbid it; then receiving is an error that says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import Tensor, address_of, describe, in_one_piece, landing, memory_of, sizes

_TOKEN_BYTES = 16
_MOST_PIECES = 1024
"""How many pieces of memory the kernel takes in one call (``IOV_MAX``)."""
_PIECE_BYTES = 2 * ctypes.sizeof(ctypes.c_void_p)
"""The kernel's ``struct iovec``: an address and a size."""

_PR_SET_PTRACER = 0x59616D61
_ANY_PROCESS = ctypes.c_ulong(-1)

_libc = ctypes.CDLL(None, use_errno=True)
_read_memory = _libc.process_vm_readv
_read_memory.restype = ctypes.c_ssize_t
_read_memory.argtypes = [
    ctypes.c_int,  # a process
    *(ctypes.c_void_p, ctypes.c_ulong),  # pieces of our memory, and how many
    *(ctypes.c_void_p, ctypes.c_ulong),  # pieces of its memory, and how many
    ctypes.c_ulong,
]


@dataclass
class CrossMemoryMetadata(TensorTransportMetadata):
    """The description of an object's tensors, and where their bytes are.

    Args:
        pid: the source process.
        pieces: the address and the size of each tensor there, then of the token, as the kernel wants them.
        token: what is in the last piece as long as the tensors are in the others.
    """

    pid: int = 0
    pieces: bytes = field(default=b"", repr=False)
    token: bytes = field(default=b"", repr=False)


class _Held:
    """What the source holds of an object: memory, which stays where it is, and the token, which tells so."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        self._token = ctypes.create_string_buffer(self.token, _TOKEN_BYTES)
        packed = [in_one_piece(tensor) for tensor in tensors]
        self.pieces = _pieces(packed, [tensor.nbytes for tensor in packed], self._token).tobytes()
        self._memory = [memory_of(tensor) for tensor in packed]

    def __del__(self) -> None:
        ctypes.memset(self._token, 0, _TOKEN_BYTES)


class CrossMemoryTransport(TensorTransportManager):
    """One-sided; carries plain CPU memory of torch and numpy. What is delivered is the source's live memory."""

    def __init__(self) -> None:
        # By object id, one for each extract. Without a lock: every access is a single step of a dictionary or list.
        self._held: dict[str, list[_Held]] = {}

    def tensor_transport_backend(self) -> str:
        """The name to register."""
        return "CROSS_MEMORY"

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

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> CrossMemoryMetadata:
        """Describe the tensors, say where they are, and hold their memory from now on.

        Called again for an object, as Ray does where a task had to run again, it holds those tensors as well.

        Raises:
            ValueError: a tensor is not plain CPU memory. Nothing is held.
        """
        tensor_meta = describe(rdt_object)
        held = _Held(rdt_object)
        self._held.setdefault(obj_id, []).append(held)
        _let_be_read(os.getpid())
        return CrossMemoryMetadata(
            tensor_meta=tensor_meta,
            tensor_device="cpu" if rdt_object else None,
            pid=os.getpid(),
            pieces=held.pieces,
            token=held.token,
        )

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
            PermissionError: the kernel does not let this process read the source's memory.
        """
        metadata = tensor_transport_metadata
        if not isinstance(metadata, CrossMemoryMetadata):
            raise ValueError(f"CROSS_MEMORY cannot read the metadata of another transport ({type(metadata).__name__})")
        wanted = sizes(metadata.tensor_meta)
        there = array("L", metadata.pieces)
        if list(there[1::2]) != [*wanted, _TOKEN_BYTES] or len(metadata.token) != _TOKEN_BYTES:
            raise ValueError(f"garbled metadata of object {obj_id}: the pieces do not fit the shapes and dtypes")
        gone = f"object {obj_id} is gone: its source (process {metadata.pid:d} of this host) freed it or ended"
        token = ctypes.create_string_buffer(_TOKEN_BYTES)
        if not _read(metadata.pid, there[-2:], _pieces([], [], token)) or token.raw != metadata.token:
            raise RuntimeError(gone)
        tensors = landing(metadata.tensor_meta, target_buffers)
        if not _read(metadata.pid, there, _pieces(tensors, wanted, token)) or token.raw != metadata.token:
            raise RuntimeError(gone)
        return tensors

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Never called: the transport is one-sided."""
        raise NotImplementedError("CROSS_MEMORY is one-sided")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Let go of the object's memory; nothing if there is none (any more)."""
        self._held.pop(obj_id, None)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Never called: `can_abort_transport` is False."""
        raise NotImplementedError("CROSS_MEMORY cannot abort")


@cache
def _let_be_read(pid: int) -> None:
    """Lift Yama's restriction for this process. Elsewhere the call fails, and there is nothing to lift."""
    _libc.prctl(_PR_SET_PTRACER, _ANY_PROCESS, 0, 0, 0)


def _pieces(tensors: Sequence[Tensor], nbytes: Sequence[int], token: ctypes.Array[ctypes.c_char]) -> array[int]:
    """Where the bytes of tensors lie, each of them in one piece, and then a token."""
    pieces = array("L", bytes(_PIECE_BYTES * (len(tensors) + 1)))
    pieces[0::2] = array("L", [*map(address_of, tensors), ctypes.addressof(token)])
    pieces[1::2] = array("L", [*nbytes, _TOKEN_BYTES])
    return pieces


def _read(pid: int, there: array[int], here: array[int]) -> bool:
    """Fill pieces of our memory from pieces of another process, of the same sizes, one after the other.

    Returns:
        Whether that process and that memory exist.

    Raises:
        OSError: the kernel does not let us read it.
    """
    ends = list(accumulate(there[1::2]))
    done = 0
    while done < ends[-1]:
        first = bisect_right(ends, done)  # the piece that the next byte is in
        skipped = done - ends[first] + there[2 * first + 1]
        theirs, ours = (side[2 * first : 2 * (first + _MOST_PIECES)] for side in (there, here))
        for side in (theirs, ours):
            side[0] += skipped
            side[1] -= skipped
        count = len(theirs) // 2
        moved = _read_memory(pid, ours.buffer_info()[0], count, theirs.buffer_info()[0], count, 0)
        if moved <= 0:
            _raise_unless_gone(pid, ctypes.get_errno())
            return False
        done += moved  # 2 GiB at most, and less where the memory ends
    return True


def _raise_unless_gone(pid: int, code: int) -> None:
    if code in (errno.ESRCH, errno.EFAULT):
        return
    hint = ""
    if code == errno.EPERM:
        hint = (
            "; it takes the same user and privileges, kernel.yama.ptrace_scope 0 or 1, and a container that permits it"
        )
    raise OSError(code, f"cannot read the memory of process {pid}: {os.strerror(code)}{hint}")
