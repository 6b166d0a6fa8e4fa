"""NCCL itself, through ctypes from the library that torch has loaded: communicators of two.

Not by torch's own process groups: they wait inside NCCL, where no abort reaches them, and end the process when that
takes too long. Nor by what NCCL calls nonblocking communicators: they start a thread for every transfer, which takes as
long as to send twenty megabytes over NVLink. Instead, a communicator is made on a thread of its own, up to the point
from which on NCCL waits only on the GPU; and what waits there, NCCL can abort.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch

UNIQUE_ID_BYTES = 128
_BYTES = 0  # ncclInt8
_REMOTE_ERROR = 6


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * UNIQUE_ID_BYTES)]


class NcclError(Exception):
    """NCCL failed.

    Args:
        function: that said so.
        result: the code.
    """

    def __init__(self, function: str, result: int) -> None:
        detail = (_library().ncclGetLastError(None) or b"").decode(errors="replace")
        super().__init__(f"{function}: {_library().ncclGetErrorString(result).decode()}. {detail}".rstrip(". "))
        self.is_remote = result == _REMOTE_ERROR
        """Whether it is because of the other side."""


@cache
def _library() -> Any:
    torch.cuda.init()  # loads NCCL, wherever torch has it from
    library = ctypes.CDLL("libnccl.so.2")
    library.ncclGetLastError.restype = library.ncclGetErrorString.restype = ctypes.c_char_p
    return library


def _call(function: str, *args: Any) -> None:
    result = getattr(_library(), function)(*args)
    if result:
        raise NcclError(function, result)


def unique_id() -> bytes:
    """By this, the two sides of a new communicator find each other."""
    made = _UniqueId()
    _call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)


class Communicator:
    """One side of a communicator of two.

    Args:
        unique: the same at both sides.
        rank: `SENDER` or `RECEIVER`.
        device: the GPU.
    """

    SENDER, RECEIVER = 0, 1

    def __init__(self, unique: bytes, rank: int, device: torch.device) -> None:
        self.stream = _stream_of_its_own(device)
        """On which it works."""
        self._rank = rank
        self._handle = ctypes.c_void_p()
        self._error: Exception | None = None
        self._handing_over = threading.Lock()
        self._connected = self._aborted = False
        threading.Thread(target=self._connect, args=[unique], name="rdt-nccl", daemon=True).start()

    def _connect(self, unique: bytes) -> None:
        """Do all that waits for the other side. That ends when the other side does the same, or dies."""
        try:
            with torch.cuda.stream(self.stream):
                handle, identity = ctypes.c_void_p(), _UniqueId.from_buffer_copy(unique)
                _call("ncclCommInitRank", ctypes.byref(handle), 2, identity, self._rank)
                self._handle = handle
                self._first = torch.zeros(1, dtype=torch.uint8, device=self.stream.device)
                self.move([self._first])  # NCCL makes connections when they are used first
        except Exception as error:
            self._error = error
        with self._handing_over:
            self._connected = True
        if self._aborted:
            self.abort()

    def is_ready(self) -> bool:
        """Whether it can be used.

        Raises:
            NcclError: it failed, now or in a transfer.
        """
        if not self._connected:
            return False
        if self._error is not None:
            raise self._error
        state = ctypes.c_int()
        _call("ncclCommGetAsyncError", self._handle, ctypes.byref(state))
        if state.value:
            raise NcclError("NCCL", state.value)
        return True

    def move(self, buffers: Sequence[torch.Tensor]) -> None:
        """Queue a transfer of the bytes of contiguous tensors, in order and of the same sizes at both sides."""
        function = "ncclSend" if self._rank == self.SENDER else "ncclRecv"
        stream = ctypes.c_void_p(self.stream.cuda_stream)
        _call("ncclGroupStart")
        try:
            for buffer in buffers:
                where, size = ctypes.c_void_p(buffer.data_ptr()), ctypes.c_size_t(buffer.nbytes)
                _call(function, where, size, _BYTES, 1 - self._rank, self._handle, stream)
        finally:
            _call("ncclGroupEnd")

    def abort(self) -> None:
        """End it, and whatever it does on the GPU, or see to that if it is still being made. Harmless when repeated."""
        with self._handing_over:
            self._aborted = True
            if not self._connected:
                return
            handle, self._handle = self._handle, ctypes.c_void_p()
        if handle.value is not None:
            _call("ncclCommAbort", handle)
            self.stream.synchronize()
            _idle_streams.append(self.stream)


_idle_streams: list[torch.cuda.Stream] = []
"""Of communicators that have ended. Torch keeps some memory for every stream: a new one each time would add to that."""


def _stream_of_its_own(device: torch.device) -> torch.cuda.Stream:
    """A stream that no other communicator has: it would have to wait for this one's other side, too."""
    for stream in _idle_streams.copy():
        if stream.device == device:
            with suppress(ValueError):  # another thread was faster
                _idle_streams.remove(stream)
                return stream
    return torch.cuda.Stream(device, priority=-1)  # of those that hardly anybody else uses
