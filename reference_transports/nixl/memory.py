"""What is registered of an object's tensors, and where in it their bytes are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from reference_transports._layout import bytes_of, in_one_piece
from reference_transports.nixl.agent import Agent, Table

_SMALL = {"cpu": 4 << 10, "cuda": 64 << 10}
"""Bytes below which a tensor is packed, with others, instead of being registered, by type of device."""


class Memory:
    """Memory that holds the bytes of tensors, for NIXL to read or to write until it is closed.

    That of a tensor itself or, if it is small, a part of a pack. (If it is not contiguous, a copy's.)

    Args:
        agent: this process's.
        tensors: all on one type of device, and not all empty.
        offered: whether other processes are to read it.
    """

    def __init__(self, agent: Agent, tensors: Sequence[torch.Tensor], *, offered: bool) -> None:
        pieces = [in_one_piece(tensor) for tensor in tensors]
        sizes = [piece.nbytes for piece in pieces]
        home = pieces[0].device  # a pack is on one device; what is small and elsewhere is registered
        self.device = home.type
        self._agent = agent
        large = [
            index
            for index, size in enumerate(sizes)
            if size >= _SMALL[self.device] or (size and pieces[index].device != home)
        ]
        small = sorted({index for index, size in enumerate(sizes) if size}.difference(large))
        self._packed = [bytes_of(pieces[index]) for index in small]
        self._pack = torch.empty(sum(sizes[index] for index in small), dtype=torch.uint8, device=home)
        # Storages, since a tensor may be given another one.
        self._kept = [pieces[index].untyped_storage() for index in large]
        regions = [(pieces[index].data_ptr(), sizes[index]) for index in large]
        pack = [(self._pack.data_ptr(), self._pack.nbytes)] if small else []
        self.registration = (agent.offer if offered else agent.register)(regions + pack, self.device)
        self.places: Table = np.zeros((len(pieces), 3), np.int64)
        """For each tensor the address and size of its bytes, and the number under which they are registered."""
        self.places[large] = self.registration.table[: len(large)]
        if small:
            self.places[small] = self.registration.table[-1]
            self.places[small, 1] = [sizes[index] for index in small]
            self.places[small[1:], 0] += np.cumsum(self.places[small[:-1], 1])

    def await_pack(self) -> None:
        """Wait until the pack can be written: what had its memory a moment ago may still be queued on the GPU."""
        if self._packed:
            settle([self._pack])

    def pack(self) -> None:
        """Put the bytes of the small tensors where they can be read."""
        if self._packed:
            torch.cat(self._packed, out=self._pack)
            self._packed = []

    def unpack(self) -> None:
        """Give the small tensors their bytes, when they have come."""
        if self._packed:
            torch.split_with_sizes_copy(self._pack, [piece.nbytes for piece in self._packed], out=self._packed)

    def close(self) -> None:
        """Take the memory away from NIXL, and let go of it."""
        self._agent.withdraw(self.registration)
        self._kept = []


def settle(tensors: Iterable[torch.Tensor], *, all_streams: bool = False) -> None:
    """Wait for what has been queued on GPUs, on the current stream or on all: NIXL knows nothing of streams."""
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        if all_streams:
            torch.cuda.synchronize(device)
        else:
            torch.cuda.current_stream(device).synchronize()


def joined(local: Table, remote: Table) -> tuple[Table, Table]:
    """The same bytes in as few rows as possible, without empty ones."""
    order = np.argsort(local[:, 0], kind="stable")
    order = order[local[order, 1] > 0]
    local, remote = local[order], remote[order]
    goes_on = np.ones(len(order) - 1, bool)
    for table in (local, remote):
        goes_on &= (table[:-1, 0] + table[:-1, 1] == table[1:, 0]) & (table[:-1, 2] == table[1:, 2])
    starts = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    lengths = np.add.reduceat(local[:, 1], starts)
    local, remote = local[starts], remote[starts]
    local[:, 1] = remote[:, 1] = lengths
    return local, remote


def cut(table: Table, begin: int, end: int) -> Table:
    """The rows of the bytes from `begin` to `end`, counted over the whole table."""
    ends = np.cumsum(table[:, 1])
    first, last = np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end, "left")
    piece = table[first : last + 1].copy()
    piece[-1, 1] -= ends[last] - end
    skipped = begin - (ends[first] - table[first, 1])
    piece[0, 0] += skipped
    piece[0, 1] -= skipped
    return piece
