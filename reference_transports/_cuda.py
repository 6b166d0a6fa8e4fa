"""What the GPU transports need of CUDA and torch does not offer: memory of one process in another.

Through ctypes, from the CUDA runtime that torch has loaded. All of it concerns the current device of the thread.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import cache
from typing import Any

import torch

HANDLE_BYTES = 64
_WITH_PEER_ACCESS = 1
"""``cudaIpcMemLazyEnablePeerAccess``: memory of another GPU is mapped, too, if the two can reach each other."""

_mapping = threading.RLock()
"""CUDA counts how often it has mapped an allocation, but not so that threads could do it at once: one that opens what
another closes is told that it is mapped already. Reentrant, since a garbage collection inside may unmap as well."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class CudaError(RuntimeError):
    """CUDA refused."""


@cache
def _runtime() -> ctypes.CDLL:
    version = torch.version.cuda
    if version is None:
        raise CudaError("this torch was built without CUDA")
    library = ctypes.CDLL(f"libcudart.so.{version.split('.')[0]}")
    library.cudaGetErrorString.restype = ctypes.c_char_p
    return library


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(function: str, *args: Any) -> None:
    runtime = _runtime()
    error = getattr(runtime, function)(*args)
    if error:
        runtime.cudaGetLastError()  # forget it, or torch would take it for an error of its own
        raise CudaError(f"{function}: {runtime.cudaGetErrorString(error).decode()}")


def allocation_at(address: int) -> tuple[int, int]:
    """Base and size of the allocation that the address lies in: a handle is always for the whole of one."""
    _call("cudaFree", None)  # frees nothing; but the driver's own functions presuppose a call of the runtime's
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    error = _driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    if error:
        raise CudaError(f"cuMemGetAddressRange: error {error}")
    return base.value, size.value


def export(base: int) -> bytes:
    """A handle by which another process can map the allocation.

    Raises:
        CudaError: it is none that can be exported: only what comes from cudaMalloc can, in the process that called it.
    """
    handle = _Handle()
    _call("cudaIpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(base))
    return bytes(handle)


def map_in(handle: bytes) -> int:
    """Map an allocation of another process; gives its base here. The same one may be mapped several times.

    Raises:
        CudaError: it is gone, or of this process, or on a GPU that the current one cannot reach.
    """
    address = ctypes.c_void_p()
    with _mapping:
        _call("cudaIpcOpenMemHandle", ctypes.byref(address), _Handle.from_buffer_copy(handle), _WITH_PEER_ACCESS)
    assert address.value is not None
    return address.value


def unmap(base: int) -> None:
    """Undo one `map_in`. The other process must not have freed the allocation yet."""
    with _mapping:
        _call("cudaIpcCloseMemHandle", ctypes.c_void_p(base))


class Memory:
    """Memory of the GPU from cudaMalloc itself, which can be exported, however torch allocates.

    Freed with the last reference, which any tensor made by `torch.as_tensor` has.
    """

    def __init__(self, size: int) -> None:
        self._address = ctypes.c_void_p()
        _call("cudaMalloc", ctypes.byref(self._address), ctypes.c_size_t(size))
        assert self._address.value is not None
        self.__cuda_array_interface__ = array_interface(self._address.value, size)

    def __del__(self) -> None:
        if self._address.value is not None and not sys.is_finalizing():
            _call("cudaFree", self._address)


def array_interface(address: int, size: int) -> dict[str, Any]:
    """What makes an object with this as its ``__cuda_array_interface__`` bytes to `torch.as_tensor`."""
    return {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}
