"""Memory of a GPU that several processes use: what one exports, and what another maps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from reference_transports import _cuda
from reference_transports._layout import in_one_piece
from reference_transports._loans import Borrowed

_ALIGNED = 16
"""Bytes; every dtype has an itemsize that divides it."""


class Exported:
    """The memory of tensors, as others need to know it.

    Args:
        tensors: on the current device, none of them empty.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.handles: list[bytes] = []
        """Of allocations."""
        self.storages: list[tuple[int, int, int]] = []
        """For each the number of its allocation, and offset and size there, in bytes."""
        self.kept: list[torch.UntypedStorage] = []
        """The storages themselves. A tensor may be given another one."""
        self.places: list[tuple[int, int]] = []
        """For each tensor the number of its storage, and the offset there, in elements."""
        self.strides: list[tuple[int, ...] | None] = []
        """For each tensor that is not contiguous."""
        self._extents: list[tuple[int, int]] = []  # base and size of each allocation
        self._numbers: dict[tuple[int, int], int] = {}  # of storages, by address and size
        plain = [in_one_piece(tensor) if tensor.is_conj() or tensor.is_neg() else tensor for tensor in tensors]
        stuck = [index for index, tensor in enumerate(plain) if not self._export(tensor)]
        for index, copy in zip(stuck, _copies([plain[index] for index in stuck]), strict=True):
            self._export(copy)
            plain[index] = copy
        self.places = [self._place(tensor) for tensor in plain]
        self.strides = [None if tensor.is_contiguous() else tensor.stride() for tensor in plain]

    def _export(self, tensor: torch.Tensor) -> bool:
        """Export the allocation in which the tensor is, unless that was done or cannot be done."""
        if self._allocation_at(tensor.data_ptr()) is None:
            base, size = _cuda.allocation_at(tensor.data_ptr())
            try:
                self.handles.append(_cuda.export(base))
            except _cuda.CudaError:
                return False
            self._extents.append((base, size))
        return True

    def _allocation_at(self, address: int) -> int | None:
        for number, (base, size) in enumerate(self._extents):
            if base <= address < base + size:
                return number
        return None

    def _place(self, tensor: torch.Tensor) -> tuple[int, int]:
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), storage.nbytes()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.kept)
            allocation = self._allocation_at(key[0])
            assert allocation is not None
            self.storages.append((allocation, key[0] - self._extents[allocation][0], key[1]))
            self.kept.append(storage)
        return number, int(tensor.storage_offset())


class Mapped:
    """Memory of another process, mapped into the current device until the last storage in it is dropped.

    Args:
        borrowed: what keeps it, to be closed then.
        handles: of its allocations.

    Raises:
        RuntimeError: CUDA cannot map it.
    """

    def __init__(self, borrowed: Borrowed, handles: Sequence[bytes]) -> None:
        self._borrowed = borrowed
        self._device = torch.cuda.current_device()
        self._bases: list[int] = []
        for handle in handles:
            self._bases.append(_cuda.map_in(handle))

    def storage(self, allocation: int, offset: int, size: int) -> torch.UntypedStorage:
        """Bytes in one of the allocations."""
        piece = _Piece(self, self._bases[allocation] + offset, size)
        return torch.as_tensor(piece, device=torch.device("cuda", self._device)).untyped_storage()

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # the kernel does it all
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()  # the GPU may still be at work on it, on any stream
            for base in self._bases:
                _cuda.unmap(base)
        self._borrowed.close()


class _Piece:
    """Lends mapped memory to torch, and keeps it mapped."""

    def __init__(self, mapped: Mapped, address: int, size: int) -> None:
        self._mapped = mapped
        self.__cuda_array_interface__: dict[str, Any] = _cuda.array_interface(address, size)


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Contiguous copies, in memory that can be exported."""
    if not tensors:
        return []
    starts = [0]
    for tensor in tensors:
        starts.append(starts[-1] + -(-tensor.nbytes // _ALIGNED) * _ALIGNED)
    device = tensors[0].device
    storage = torch.as_tensor(_cuda.Memory(starts[-1]), device=device).untyped_storage()
    copies = []
    for start, tensor in zip(starts[:-1], tensors, strict=True):
        copy = torch.empty(0, dtype=tensor.dtype, device=device)
        copy.set_(storage, start // tensor.itemsize, tensor.shape, ())
        copies.append(copy.copy_(tensor.detach()))
    return copies
