"""What to watch about tensors while a transport handles them: their bytes, their surroundings, their lifetime."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MARGIN = 4096
"""Bytes of canary before, between and after guarded buffers: a page, as hardware likes to round to pages."""
ALIGNMENT = 64
"""Guarded buffers begin at multiples of this, as memory from the array libraries does."""


class Guard:
    """Tells whether bytes around target buffers changed."""

    def __init__(self, read: Callable[[], np.ndarray], buffers: Sequence[tuple[int, int]]) -> None:
        """Remember what an arena holds now.

        Args:
            read: gives the bytes of the arena, flat.
            buffers: the first and the end of every buffer's bytes in the arena, in order.
        """
        self._read = read
        self._buffers = buffers
        self._before = read().copy()

    def damage(self) -> list[str]:
        """Where bytes outside the buffers changed, a sentence for each gap; empty if none did."""
        now = self._read()
        starts = [start for start, _ in self._buffers]
        ends = [end for _, end in self._buffers]
        found = []
        for gap, (begin, end) in enumerate(zip([0, *ends], [*starts, now.size], strict=True)):
            changed = begin + np.flatnonzero(now[begin:end] != self._before[begin:end])
            if changed.size:
                places = []
                if gap > 0:
                    places.append(f"the first {changed[0] - begin} bytes after buffer {gap - 1} ends")
                if gap < len(starts):
                    places.append(f"the last {end - changed[-1]} bytes before buffer {gap} begins")
                noun = "byte" if changed.size == 1 else "bytes"
                found.append(f"{changed.size} {noun} outside the buffers changed, {' and '.join(places)}")
        return found


def arena(sizes: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """Places for guarded buffers.

    Args:
        sizes: of the buffers, in bytes.

    Returns:
        The first and the end of every buffer's bytes, and the size of an arena that holds them all.
    """
    places, end = [], 0
    for size in sizes:
        start = -(-(end + MARGIN) // ALIGNMENT) * ALIGNMENT
        end = start + size
        places.append((start, end))
    return places, end + MARGIN


@dataclass(frozen=True)
class Fingerprint:
    """What tensors were like at one moment."""

    facts: tuple[Mapping[str, object], ...]
    """For every tensor, what can be said of it, by name."""
    memories: tuple[np.ndarray | None, ...]
    """For every tensor, all bytes of the memory that it lies in; None for one that lies in an earlier one's memory."""
    look: Callable[[Any], tuple[Mapping[str, object], int, np.ndarray]]
    """Gives the facts of a tensor, an identity of its memory, and that memory's bytes."""

    @classmethod
    def take(
        cls, tensors: Sequence[Any], look: Callable[[Any], tuple[Mapping[str, object], int, np.ndarray]]
    ) -> Fingerprint:
        """What tensors are like now; for `look` see above."""
        facts, memories, known = [], [], set()
        for tensor in tensors:
            fact, identity, memory = look(tensor)
            facts.append(fact)
            memories.append(None if identity in known else memory.copy())
            known.add(identity)
        return cls(tuple(facts), tuple(memories), look)

    def changes(self, tensors: Sequence[Any]) -> list[str]:
        """How the same tensors differ now, one sentence for each difference; empty if they do not."""
        if len(tensors) != len(self.facts):
            return [f"there are {len(tensors)} tensors, there were {len(self.facts)}"]
        found = []
        for index, (tensor, before, memory) in enumerate(zip(tensors, self.facts, self.memories, strict=True)):
            now, _, bytes_now = self.look(tensor)
            found += [f"tensor {index}: {name} was {before[name]}, is {now[name]}" for name in before
                      if now[name] != before[name]]  # fmt: skip
            if memory is None:
                continue
            if memory.size != bytes_now.size:
                found.append(f"tensor {index}: its memory had {memory.size} bytes, has {bytes_now.size}")
            elif not np.array_equal(memory, bytes_now):
                places = np.flatnonzero(memory != bytes_now)
                first = places[0]
                found.append(
                    f"tensor {index}: byte {first} of its memory was 0x{memory[first]:02X}, "
                    f"is 0x{bytes_now[first]:02X}; {places.size} bytes of it changed"
                )
        return found


class Lifetimes:
    """Tells how many memories are still referenced by anybody."""

    def __init__(self, gone: Sequence[Callable[[], bool]]) -> None:
        """`gone` has one entry for each memory, which tells whether it is gone."""
        self._gone = gone

    def alive(self) -> int:
        """How many memories are still there; what only garbage holds is collected first."""
        if all(gone() for gone in self._gone):
            return 0
        gc.collect()
        return sum(not gone() for gone in self._gone)


class Span:
    """The addresses of a tensor's elements, without access to them: the memory may be another device's."""

    def __init__(self, address: int, itemsize: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        """`address` and `strides` in bytes."""
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{itemsize}",
            "data": (address, True),
            "shape": tuple(shape),
            "strides": tuple(strides),
        }

    def overlaps(self, other: Span) -> bool:
        """Whether any byte belongs to both; for layouts too intricate to tell, whether their extents meet."""
        mine, others = np.asarray(self), np.asarray(other)
        try:
            return np.shares_memory(mine, others, max_work=1_000_000)  # pyright: ignore[reportArgumentType]
        except np.exceptions.TooHardError:
            return np.may_share_memory(mine, others)
