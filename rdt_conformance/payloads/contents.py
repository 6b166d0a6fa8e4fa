"""The bytes that payloads are made of: a function of a recipe's numbers, computed anew wherever they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_BLOCK = 1 << 20
"""Bytes that one generator makes. Any block can be made without those before it."""

_CACHED = 1 << 16
"""Memories up to this many bytes are kept, as source and receiver are often one process."""


@dataclass(frozen=True)
class Memory:
    """A run of memory that tensors lie in, and what it holds.

    Every byte depends on the seed and on its place, so that swapped tensors, shifted bytes and bytes of an earlier
    payload all show.
    """

    dtype: str
    itemsize: int
    """Bytes of one element."""
    elements: int
    seed: int
    mask: bytes = b""
    """The bits that may be set in an element, `itemsize` bytes of them; empty: all."""
    inverted: bool = False
    """Every bit that may be set is the opposite of what it would be."""
    origin: str = ""
    """Where the memory comes from; empty: from the array library's own allocator."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.elements * self.itemsize

    def contents(self) -> np.ndarray:
        """All its bytes, read-only."""
        return _kept(self) if self.nbytes <= _CACHED else _generate(self, 0, self.elements)

    def pieces(self) -> Iterator[np.ndarray]:
        """All its bytes in order, in pieces that a processor's cache holds."""
        if self.nbytes <= _CACHED:
            yield self.contents()
            return
        step = max(1, _BLOCK // self.itemsize)
        for first in range(0, self.elements, step):
            yield _generate(self, first, min(first + step, self.elements))

    def fill(self, target: np.ndarray) -> None:
        """Write its contents to as many bytes, given as a flat array."""
        start = 0
        for piece in self.pieces():
            target[start : start + piece.size] = piece
            start += piece.size


@lru_cache(maxsize=512)
def _kept(memory: Memory) -> np.ndarray:
    return _generate(memory, 0, memory.elements)


def _generate(memory: Memory, first: int, last: int) -> np.ndarray:
    """The bytes of the elements from `first` up to, but not including, `last`."""
    begin, end = first * memory.itemsize, last * memory.itemsize
    data = np.empty(end - begin, np.uint8)
    for number in range(begin // _BLOCK, -(-end // _BLOCK)):
        start = number * _BLOCK
        low, high = max(begin, start), min(end, start + _BLOCK)
        words = np.random.SFC64([memory.seed, number]).random_raw(-(-(high - start) // 8))
        data[low - begin : high - begin] = words.view(np.uint8)[low - start : high - start]
    if memory.inverted:
        np.invert(data, out=data)
    if memory.mask:
        data.reshape(-1, memory.itemsize)[...] &= np.frombuffer(memory.mask, np.uint8)
    data.setflags(write=False)
    return data
