"""Memory of a GPU that several processes use: what one exports, and what another maps."""

from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from reference_transports import _cuda
from reference_transports._layout import TensorMeta, in_one_piece
from reference_transports._loans import Borrowed

_ALIGNED = 16
"""Bytes; every dtype has an itemsize that divides it."""


class Exported:
    """The memory of tensors, as others need to know it. Of thousands of tensors, each costs a microsecond or less.

    Args:
        tensors: on the current device, none of them empty.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.handles: list[bytes] = []
        """Of allocations."""
        self._extents: list[tuple[int, int, int]] = []  # base, end and number of each allocation, in order
        plain = list(tensors)
        if any(map(torch.Tensor.is_conj, plain)) or any(map(torch.Tensor.is_neg, plain)):
            plain = [in_one_piece(tensor) if tensor.is_conj() or tensor.is_neg() else tensor for tensor in plain]
        stuck = self._export(list(map(torch.Tensor.data_ptr, plain)))
        copies = _copies([plain[index] for index in stuck])
        for index, copy in zip(stuck, copies, strict=True):
            plain[index] = copy
        self._export([copy.data_ptr() for copy in copies])
        owners = list(map(torch.Tensor.untyped_storage, plain))
        identities = [owner._cdata for owner in owners]
        found = dict(zip(identities, owners, strict=True))
        self.kept = list(found.values())
        """The storages themselves. A tensor may be given another one."""
        self.storages = _table([self._within(owner.data_ptr(), owner.nbytes()) for owner in self.kept])
        """For each the number of its allocation, and offset and size there, in bytes; see `rows`."""
        numbers = {identity: number for number, identity in enumerate(found)}
        offsets = [int(tensor.storage_offset()) for tensor in plain]
        self.places = _table(list(zip(map(numbers.__getitem__, identities), offsets, strict=True)))
        """For each tensor the number of its storage, and the offset there, in elements; see `rows`."""
        contiguous = map(torch.Tensor.is_contiguous, plain)
        self.strides = {number: plain[number].stride() for number, yes in enumerate(contiguous) if not yes}
        """For each tensor that is not contiguous, by its number."""

    def _export(self, addresses: Sequence[int]) -> list[int]:
        """Export the allocations that the addresses are in; the numbers of those for which it cannot be done."""
        order = np.argsort(np.array(addresses, np.uint64), kind="stable").tolist()
        ascending = [addresses[index] for index in order]
        stuck: list[int] = []
        first = 0
        while first < len(order):
            base, size = _cuda.allocation_at(ascending[first])
            after = bisect.bisect_left(ascending, base + size, first)
            try:
                handle = _cuda.export(base)
            except _cuda.CudaError:
                stuck += order[first:after]
            else:
                bisect.insort(self._extents, (base, base + size, len(self.handles)))
                self.handles.append(handle)
            first = after
        return sorted(stuck)

    def _within(self, address: int, size: int) -> tuple[int, int, int]:
        base, end, number = self._extents[bisect.bisect_right(self._extents, address, key=lambda each: each[0]) - 1]
        assert base <= address < end
        return number, address - base, size


def _table(numbers: Sequence[tuple[int, ...]]) -> bytes:
    return np.array(numbers, np.int64).tobytes()


def rows(table: bytes, width: int) -> list[tuple[int, ...]]:
    """The rows of a table of integers, as it travels: a few bytes for each, where there may be thousands."""
    return list(map(tuple, np.frombuffer(table, np.int64).reshape(-1, width).tolist()))


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

    def storages(self, places: Sequence[tuple[int, ...]]) -> list[torch.UntypedStorage]:
        """Parts of the allocations, by the number of each, the offset there and the size, in bytes."""
        ends = {}
        for allocation, offset, size in places:
            ends[allocation] = max(ends.get(allocation, 0), offset + size)
        device = torch.device("cuda", self._device)
        lent = {
            allocation: torch.as_tensor(_Allocation(self, self._bases[allocation], end), device=device)
            for allocation, end in ends.items()
        }
        whole = {allocation: tensor.untyped_storage() for allocation, tensor in lent.items()}
        return [whole[allocation][offset : offset + size] for allocation, offset, size in places]

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # the kernel does it all
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()  # the GPU may still be at work on it, on any stream
            for base in self._bases:
                _cuda.unmap(base)
        self._borrowed.close()


class _Allocation:
    """Lends a mapped allocation to torch, and keeps it mapped."""

    def __init__(self, mapped: Mapped, address: int, size: int) -> None:
        self._mapped = mapped
        self.__cuda_array_interface__: dict[str, Any] = _cuda.array_interface(address, size)


def tensors_in(
    storages: Sequence[torch.UntypedStorage],
    tensor_meta: TensorMeta,
    places: bytes,
    strides: Mapping[int, tuple[int, ...]],
    device: torch.device,
) -> list[torch.Tensor]:
    """Make the tensors of an object out of its storages; equal ones that lie one after the other, all at once.

    Args:
        storages: by their numbers.
        tensor_meta: shapes and dtypes of the tensors.
        places: of those that are not empty, see `Exported`.
        strides: likewise.
        device: that has the storages.
    """
    table = np.frombuffer(places, np.int64).reshape(-1, 2)
    strided = np.zeros(len(table), bool)
    strided[list(strides)] = True
    tensors: list[torch.Tensor] = []
    done = 0
    for (shape, dtype), equal in groupby(tensor_meta):
        count, numel = len(list(equal)), math.prod(shape)
        if not numel:
            tensors += [torch.empty(shape, dtype=dtype, device=device) for _ in range(count)]
            continue
        block, alone = table[done : done + count], strided[done : done + count]
        follows = (block[1:] - block[:-1] == (0, numel)).all(axis=1) & ~alone[1:] & ~alone[:-1] & bool(shape)
        starts = [0, *(np.flatnonzero(~follows) + 1).tolist()]
        # What an unsafe split returns are no views of each other for autograd: at the source they were none either.
        blanks = torch.empty(len(starts), dtype=dtype, device=device).unsafe_split(1)
        for first, end, whole in zip(starts, [*starts[1:], count], blanks, strict=True):
            storage, offset = block[first].tolist()
            if end - first == 1:
                tensors.append(whole.set_(storages[storage], offset, shape, strides.get(done + first, ())))
            else:
                whole.set_(storages[storage], offset, ((end - first) * shape[0], *shape[1:]), ())
                tensors += whole.unsafe_split(shape[0])
        done += count
    return tensors


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
