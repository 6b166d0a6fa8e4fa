"""NCCL itself, through ctypes from the library that torch has loaded: communicators of two.

They are made to be nonblocking. So no call waits for the other side, and a thread that asks whether something is done
can give up in between: torch's own process groups wait inside NCCL, and end the process when that takes too long.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

UNIQUE_ID_BYTES = 128
_BYTES = 0  # ncclInt8
_IN_PROGRESS = 7
_REMOTE_ERROR = 6


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * UNIQUE_ID_BYTES)]


class _Config(ctypes.Structure):
    """``ncclConfig_t`` as in NCCL 2.14, the first to have it; later ones take their defaults for the rest."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    ]


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
    if result not in (0, _IN_PROGRESS):
        raise NcclError(function, result)


def unique_id() -> bytes:
    """By this, the two sides of a new communicator find each other."""
    made = _UniqueId()
    _call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)


class Communicator:
    """One side of a communicator of two, on the current device. One thread at a time may use it.

    What is started, beginning with the communicator itself, goes on by itself; `is_ready` tells when the next may be.

    Args:
        unique: the same at both sides.
        rank: 0 or 1.
    """

    def __init__(self, unique: bytes, rank: int) -> None:
        self._peer = 1 - rank
        self._handle = ctypes.c_void_p()
        config = _Config(ctypes.sizeof(_Config), 0xCAFEBEEF, 21400, 0)
        identity = _UniqueId.from_buffer_copy(unique)
        _call("ncclCommInitRankConfig", ctypes.byref(self._handle), 2, identity, rank, ctypes.byref(config))

    def is_ready(self) -> bool:
        """Whether all that was started is done, or queued on its stream.

        Raises:
            NcclError: it failed.
        """
        state = ctypes.c_int()
        _call("ncclCommGetAsyncError", self._handle, ctypes.byref(state))
        if state.value not in (0, _IN_PROGRESS):
            raise NcclError("NCCL", state.value)
        return state.value == 0

    def send(self, buffers: Sequence[torch.Tensor], stream: torch.cuda.Stream) -> None:
        """Start to send the bytes of contiguous tensors, in order, as one operation on the stream."""
        self._move("ncclSend", buffers, stream)

    def receive(self, buffers: Sequence[torch.Tensor], stream: torch.cuda.Stream) -> None:
        """Start to receive as many bytes into contiguous tensors, likewise."""
        self._move("ncclRecv", buffers, stream)

    def _move(self, function: str, buffers: Sequence[torch.Tensor], stream: torch.cuda.Stream) -> None:
        _call("ncclGroupStart")
        try:
            for buffer in buffers:
                where, size = ctypes.c_void_p(buffer.data_ptr()), ctypes.c_size_t(buffer.nbytes)
                _call(function, where, size, _BYTES, self._peer, self._handle, ctypes.c_void_p(stream.cuda_stream))
        finally:
            _call("ncclGroupEnd")

    def abort(self) -> None:
        """End whatever goes on, on this side, and the communicator with it. Harmless when repeated."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle.value is not None:
            _call("ncclCommAbort", handle)
