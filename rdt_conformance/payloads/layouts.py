"""How a tensor lies in its memory: shapes worth trying, and the ways to lay out each."""

from __future__ import annotations

import math
from dataclasses import dataclass

Shape = tuple[int, ...]

_SMALL_VIEW = 256
"""Elements up to which a tensor also comes as a small view of a large memory,"""
_LARGE_MEMORY = 16384
"""which then has this many elements."""


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor are; all numbers count elements."""

    name: str
    """What a user would call it; empty for contiguous with nothing around it."""
    shape: Shape
    strides: Shape
    offset: int
    elements: int
    """Of the memory that the tensor is a view of."""

    @property
    def contiguous(self) -> bool:
        """Whether it is its whole memory, in order."""
        return not self.name


def contiguous(shape: Shape, *, name: str = "", offset: int = 0, elements: int | None = None) -> Layout:
    """Row after row, with nothing between; with nothing around it unless `offset` or `elements` say otherwise."""
    return Layout(name, shape, _strides(shape), offset, math.prod(shape) if elements is None else elements)


def _strides(shape: Shape, step: int = 1) -> Shape:
    """Strides of rows after rows, counting an empty dimension as one of 1, as torch and numpy do."""
    strides = []
    for length in reversed(shape):
        strides.append(step)
        step *= max(1, length)
    return tuple(reversed(strides))


def _strided(name: str, shape: Shape, strides: Shape) -> Layout:
    """A layout that begins and ends with its memory; negative strides walk backwards from the far end."""
    offset = -sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True) if stride < 0)
    reach = sum((length - 1) * abs(stride) for length, stride in zip(shape, strides, strict=True))
    return Layout(name, shape, strides, offset, reach + 1)


def _permuted(name: str, shape: Shape, order: Shape) -> Layout:
    """`order` names the dimensions from the slowest to the fastest in memory."""
    in_memory = _strides(tuple(shape[dimension] for dimension in order))
    strides = dict(zip(order, in_memory, strict=True))
    return Layout(name, shape, tuple(strides[dimension] for dimension in range(len(shape))), 0, math.prod(shape))


def layouts(shape: Shape, *, backwards: bool) -> tuple[Layout, ...]:
    """All layouts of a shape, the plainest first.

    Args:
        shape: of the tensor.
        backwards: whether strides may be negative (numpy has such views, torch has none).
    """
    size, dimensions = math.prod(shape), len(shape)
    found = [contiguous(shape), contiguous(shape, name="at an offset", offset=3, elements=size + 5)]
    if dimensions >= 2:
        found.append(_permuted("transposed", shape, (*range(dimensions - 2), dimensions - 1, dimensions - 2)))
    if dimensions >= 3:
        found.append(_permuted("permuted", shape, tuple(reversed(range(dimensions)))))
    if dimensions == 4:
        found.append(_permuted("channels last", shape, (0, 2, 3, 1)))
    if size and size <= _SMALL_VIEW:
        found.append(contiguous(shape, name="small view of a large memory", offset=4099, elements=_LARGE_MEMORY))
    if size and dimensions:
        found += _with_gaps(shape) + _repeating(shape)
        if backwards:
            found.append(_strided("backwards", shape, tuple(-stride for stride in _strides(shape))))
            found.append(_strided("last dimension backwards", shape, (*_strides(shape)[:-1], -1)))
    return tuple(found)


def _with_gaps(shape: Shape) -> list[Layout]:
    """Views that leave out elements between theirs."""
    gaps = [_strided("every second element", shape, _strides(shape, step=2))]
    if len(shape) >= 2:
        gaps.append(_strided("columns of a wider matrix", shape, (*_strides((*shape[:-1], shape[-1] + 3))[:-1], 1)))
    return gaps


def _repeating(shape: Shape) -> list[Layout]:
    """Views in which several elements lie on the same memory."""
    repeating = [_strided("expanded scalar", shape, (0,) * len(shape))]
    if len(shape) >= 2:
        repeating.append(_strided("expanded", shape, (0, *_strides(shape)[1:])))
        repeating.append(_strided("overlapping windows", shape, (*_strides(shape)[:-2], 1, 1)))
    return repeating


_SMALL_SHAPES: tuple[Shape, ...] = (
    (1,), (), (0,), (2,), (3,), (7,), (3, 4), (1, 1), (5, 1), (1, 6), (0, 3), (3, 0, 2), (2, 3, 4), (16, 16),
    (2, 3, 4, 5), (1, 8, 1, 3), (2, 1, 3, 2, 2), (1, 1, 1, 1, 1, 1),
)  # fmt: skip


def small_shapes(itemsize: int, max_bytes: int) -> tuple[Shape, ...]:
    """Shapes of every dimension, the plainest first, some with no element."""
    return tuple(shape for shape in _SMALL_SHAPES if math.prod(shape) * itemsize <= max_bytes)


def edge_shapes(itemsize: int, max_bytes: int) -> tuple[Shape, ...]:
    """Shapes whose sizes in bytes lie at and next to powers of two and odd numbers of pages, the smallest first."""
    edges = {1 << power for power in range(4, max(5, max_bytes.bit_length()))}
    edges |= {pages * 4096 for pages in (3, 5, 15, 17)}
    lengths = {edge // itemsize + more for edge in edges for more in (-1, 0, 1)}
    allowed = sorted(length for length in lengths if 0 < length * itemsize <= max_bytes)
    flat: list[Shape] = [(length,) for length in allowed]
    return tuple(flat + [(length // 4, 4) for length in allowed if length >= 4 and length % 4 == 0])
