"""Hypothesis strategies over recipes; the same for every array library.

Simpler choices come first everywhere: what Hypothesis shrinks towards is one small plain float32 tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rdt_conformance.payloads.contents import Memory
from rdt_conformance.payloads.layouts import Layout, Shape, contiguous, edge_shapes, layouts, small_shapes
from rdt_conformance.payloads.recipes import ArrayPayload, ArrayRecipe

_SEEDS = 1 << 16
_SEEDS_PER_PAYLOAD = 1 << 20
_PLAIN_SHARE = 5
"""A tensor of any layout is left unwrapped this many times as often as it gets any one wrap."""


@dataclass(frozen=True)
class Wrap:
    """What can be done to a tensor beyond laying it out."""

    name: str = ""
    """`ArrayRecipe.wrap`."""
    origin: str = ""
    """`Memory.origin`."""
    flip: bytes = b""
    """`Look.flip`."""
    mask: bytes = b""
    """`Memory.mask`, where it has to be narrower than the dtype's."""
    refusable: bool = False
    """More than a view of memory."""


@dataclass(frozen=True)
class ElementType:
    """A dtype as far as recipes go."""

    name: str
    itemsize: int
    mask: bytes = b""
    """`Memory.mask`."""
    wraps: tuple[Wrap, ...] = ()
    """What the array library can do to tensors of this dtype."""


@dataclass(frozen=True)
class Limits:
    """What payloads may be drawn."""

    element_types: tuple[ElementType, ...]
    max_bytes: int
    plain: bool
    refusable: bool
    backwards: bool
    """Whether the array library has negative strides."""


@st.composite
def recipe_lists(draw: st.DrawFn, limits: Limits, min_tensors: int, max_tensors: int) -> tuple[ArrayRecipe, ...]:
    """The recipes of a payload."""
    drawn = draw(st.lists(_tensors(limits), min_size=min_tensors, max_size=max_tensors))
    first_seed = draw(st.integers(0, _SEEDS - 1)) * _SEEDS_PER_PAYLOAD if drawn else 0
    recipes = [
        dataclasses.replace(recipe, memory=dataclasses.replace(recipe.memory, seed=first_seed + index))
        for index, recipe in enumerate(drawn)
    ]
    if not limits.plain and 0 < len(recipes) < max_tensors:
        recipes += draw(st.sampled_from(_companions(recipes[0])))
    return tuple(recipes)


def _companions(recipe: ArrayRecipe) -> list[list[ArrayRecipe]]:
    """Ways to send a tensor once more, next to itself: mostly none, itself, its whole memory."""
    whole = ArrayRecipe(recipe.memory, contiguous((recipe.memory.elements,)))
    return [[], [], [], [], [recipe], [whole]]


@st.composite
def _tensors(draw: st.DrawFn, limits: Limits) -> ArrayRecipe:
    """One recipe, with a seed of 0."""
    element = draw(st.sampled_from(limits.element_types))
    shape = draw(_shapes(element.itemsize, limits.max_bytes))
    if limits.plain:
        return _recipe(element, contiguous(shape), Wrap())
    layout = draw(st.sampled_from(layouts(shape, backwards=limits.backwards)))
    wraps = [wrap for wrap in element.wraps if limits.refusable or not wrap.refusable]
    return _recipe(element, layout, draw(st.sampled_from([Wrap()] * max(1, _PLAIN_SHARE * bool(wraps)) + wraps)))


def _recipe(element: ElementType, layout: Layout, wrap: Wrap, seed: int = 0) -> ArrayRecipe:
    memory = Memory(element.name, element.itemsize, layout.elements, seed, wrap.mask or element.mask, False, wrap.origin)
    return ArrayRecipe(memory, layout, wrap.name, wrap.flip)


def _shapes(itemsize: int, max_bytes: int) -> st.SearchStrategy[Shape]:
    small, edges = small_shapes(itemsize, max_bytes), edge_shapes(itemsize, max_bytes)
    choices = [st.sampled_from(some) for some in (small, edges) if some]
    # Lists of dimensions reach shapes that nobody thought of.
    largest = min(6, int((max_bytes / itemsize) ** 0.2))
    return st.one_of(*choices, st.lists(st.integers(0, max(0, largest)), max_size=5).map(tuple))


@dataclass(frozen=True, repr=False)
class ArrayFamily:
    """Several payloads whose tensors share memory; see `rdt_conformance.payloads.base.Family`."""

    name: str
    payloads: tuple[ArrayPayload, ...]

    def build(self, device: str = "cpu") -> list[list[Any]]:
        """The tensors of each payload."""
        return self.payloads[0].build_all(self.payloads, device)

    def __repr__(self) -> str:
        return f"{self.name}: {'; '.join(map(repr, self.payloads))}"


@st.composite
def families(
    draw: st.DrawFn, payload_type: type[ArrayPayload], element_types: Sequence[ElementType], max_bytes: int
) -> ArrayFamily:
    """Families over one memory of an ordinary dtype."""
    element = draw(st.sampled_from(element_types))
    length = draw(st.integers(2, max(2, max_bytes // (3 * element.itemsize)))) * 3
    name, members = draw(st.sampled_from(_members(length)))
    seed = draw(st.integers(0, _SEEDS - 1)) * _SEEDS_PER_PAYLOAD
    memory = Memory(element.name, element.itemsize, length, seed, element.mask)
    return ArrayFamily(name, tuple(payload_type((ArrayRecipe(memory, layout),)) for layout in members))


def _members(length: int) -> list[tuple[str, list[Layout]]]:
    """The families over a memory of so many elements, a multiple of three."""
    third = length // 3
    whole = contiguous((length,))
    column = Layout("column", (third,), (3,), 1, length)

    def part(begin: int, end: int) -> Layout:
        return contiguous((end - begin,), name=f"elements {begin} to {end - 1}", offset=begin, elements=length)

    return [
        ("the same tensor in two objects", [whole, whole]),
        ("the same tensor in three objects", [whole, whole, whole]),
        ("base and view", [whole, part(third, 2 * third)]),
        ("view and base", [part(0, third), whole]),
        ("base and strided view", [whole, column]),
        ("overlapping views", [part(0, 2 * third), part(third, length)]),
        ("neighbouring views", [part(0, third), part(third, length)]),
    ]


def simple_recipes(element: ElementType, nbytes: int, count: int, seed: int) -> tuple[ArrayRecipe, ...]:
    """Contiguous tensors of a one-byte dtype that together have `nbytes` bytes."""
    share, rest = divmod(nbytes, count)
    return tuple(
        _recipe(element, contiguous((share + (index < rest),)), Wrap(), seed * _SEEDS_PER_PAYLOAD + index)
        for index in range(count)
    )
