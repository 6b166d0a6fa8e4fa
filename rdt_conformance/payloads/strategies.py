"""Hypothesis strategies over recipes; the same for every array library.

Simpler choices come first everywhere: what Hypothesis shrinks towards is one small plain float32 tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from rdt_conformance.payloads.contents import Memory
from rdt_conformance.payloads.layouts import Layout, Shape, contiguous, edge_shapes, layouts, small_shapes
from rdt_conformance.payloads.recipes import ArrayPayload, ArrayRecipe

AnyPayload = TypeVar("AnyPayload", bound=ArrayPayload)

_SEEDS = st.integers(0, (1 << 16) - 1)
_SEEDS_PER_PAYLOAD = 1 << 20
_PLAIN_SHARE = 5
"""A tensor of any layout is left unwrapped this many times as often as it gets any one wrap."""
_MOST_DIMENSIONS = 5
_COMPANIONS = st.sampled_from(("nothing", "nothing", "nothing", "nothing", "itself", "its whole memory"))


NO_DIMENSIONS = "no dimensions"
NO_ELEMENTS = "no elements"
SEVERAL = "several tensors"
PART = "part of a memory"
GAPS = "gaps between elements"
"""Traits that a plain payload may have, beside the names of its dtypes; see `PayloadKind.plain_traits`."""


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class ElementType:
    """A dtype as far as recipes go."""

    name: str
    itemsize: int
    mask: bytes = b""
    """`Memory.mask`."""
    wraps: tuple[Wrap, ...] = ()
    """What the array library can do to tensors of this dtype."""
    any_layout: bool = True
    """Whether the array library itself copies it from every layout; if not, it is only sent contiguous."""


@dataclass(frozen=True)
class Limits:
    """What payloads may be drawn."""

    element_types: tuple[ElementType, ...]
    max_bytes: int
    plain: bool
    refusable: bool
    backwards: bool
    """Whether the array library has negative strides."""
    avoid: frozenset[str] = frozenset()
    """Traits that none of them has."""


Draft = tuple[ElementType, Layout, Wrap]
"""A recipe without its seed."""


@st.composite
def payloads(
    draw: st.DrawFn, payload_type: type[AnyPayload], limits: Limits, min_tensors: int, max_tensors: int
) -> AnyPayload:
    """Payloads of one type."""
    if SEVERAL in limits.avoid:
        max_tensors = min(max_tensors, max(1, min_tensors))
    # Drawn first and always, so that tensors can be taken away while shrinking.
    first_seed = draw(_SEEDS) * _SEEDS_PER_PAYLOAD
    companion = "nothing" if limits.plain else draw(_COMPANIONS)
    drafts = draw(_drafts(limits, min_tensors, max_tensors))
    recipes = [recipe(*draft, seed) for seed, draft in enumerate(drafts, first_seed)]
    if 0 < len(recipes) < max_tensors:
        recipes += _companions(recipes[0], companion)
    return payload_type(tuple(recipes))


def _companions(recipe: ArrayRecipe, companion: str) -> list[ArrayRecipe]:
    """What goes along with a tensor, to share its memory."""
    if companion == "itself":
        return [recipe]
    if companion == "its whole memory":
        return [ArrayRecipe(recipe.memory, contiguous((recipe.memory.elements,)))]
    return []


@lru_cache
def _drafts(limits: Limits, min_tensors: int, max_tensors: int) -> st.SearchStrategy[list[Draft]]:
    elements = st.sampled_from([each for each in limits.element_types if each.name not in limits.avoid])
    return st.lists(_draft(elements, limits), min_size=min_tensors, max_size=max_tensors)


@st.composite
def _draft(draw: st.DrawFn, elements: st.SearchStrategy[ElementType], limits: Limits) -> Draft:
    element = draw(elements)
    shape = draw(_shapes(element.itemsize, limits.max_bytes, limits.avoid))
    if shape is None:
        shape = draw(_any_shape(element.itemsize, limits.max_bytes, limits.avoid))
    if limits.plain:
        return element, contiguous(shape), Wrap()
    # Drawn for every dtype alike: Hypothesis takes the dtype that needs the fewest draws for the simplest.
    layout = draw(_layouts(shape, limits.backwards))
    wrap = draw(_wraps(element, limits.refusable))
    return element, layout if element.any_layout else contiguous(shape), wrap


def recipe(element: ElementType, layout: Layout, wrap: Wrap, seed: int) -> ArrayRecipe:
    """The recipe of a tensor of which all but its contents is known."""
    mask = wrap.mask or element.mask
    memory = Memory(element.name, element.itemsize, layout.elements, seed, mask, origin=wrap.origin)
    return ArrayRecipe(memory, layout, wrap.name, wrap.flip)


# Hypothesis takes longer to make a strategy than to draw from it.


@lru_cache(maxsize=4096)
def _layouts(shape: Shape, backwards: bool) -> st.SearchStrategy[Layout]:
    return st.sampled_from(layouts(shape, backwards=backwards))


@lru_cache
def _wraps(element: ElementType, refusable: bool) -> st.SearchStrategy[Wrap]:
    wraps = [wrap for wrap in element.wraps if refusable or not wrap.refusable]
    return st.sampled_from([Wrap()] * _PLAIN_SHARE + wraps)


@lru_cache
def _shapes(itemsize: int, max_bytes: int, avoid: frozenset[str]) -> st.SearchStrategy[Shape | None]:
    """Shapes to choose from; None stands for any other."""
    small = [shape for shape in small_shapes(itemsize, max_bytes) if not _shape_traits(shape) & avoid]
    edges = edge_shapes(itemsize, max_bytes)
    return st.sampled_from((*small, *small, *edges, *[None] * len(small)))


@lru_cache
def _any_shape(itemsize: int, max_bytes: int, avoid: frozenset[str]) -> st.SearchStrategy[Shape]:
    """Shapes that nobody thought of."""
    largest = min(6, int((max_bytes / itemsize) ** (1 / _MOST_DIMENSIONS)))
    lengths = st.integers(int(NO_ELEMENTS in avoid), largest)
    return st.lists(lengths, min_size=int(NO_DIMENSIONS in avoid), max_size=_MOST_DIMENSIONS).map(tuple)


def _shape_traits(shape: Shape) -> set[str]:
    found = set() if shape else {NO_DIMENSIONS}
    return found | {NO_ELEMENTS} if 0 in shape else found


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

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the words when Hypothesis prints an example, not every field."""
        printer.text(repr(self))


@st.composite
def families(
    draw: st.DrawFn,
    payload_type: type[ArrayPayload],
    element_types: Sequence[ElementType],
    max_bytes: int,
    avoid: frozenset[str],
) -> ArrayFamily:
    """Families over one memory of an ordinary dtype."""
    element = draw(st.sampled_from([each for each in element_types if each.name not in avoid]))
    length = draw(st.integers(2, max(2, max_bytes // (3 * element.itemsize)))) * 3
    known = [(name, members) for name, members in _members(length) if not _layout_traits(members) & avoid]
    name, members = draw(st.sampled_from(known))
    seed = draw(_SEEDS) * _SEEDS_PER_PAYLOAD
    memory = Memory(element.name, element.itemsize, length, seed, element.mask)
    return ArrayFamily(name, tuple(payload_type((ArrayRecipe(memory, layout),)) for layout in members))


def _layout_traits(layouts: Sequence[Layout]) -> set[str]:
    return {PART if layout.strides == (1,) else GAPS for layout in layouts if not layout.contiguous}


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
    share, rest = divmod(nbytes, max(count, 1))
    return tuple(
        recipe(element, contiguous((share + (index < rest),)), Wrap(), seed * _SEEDS_PER_PAYLOAD + index)
        for index in range(count)
    )


def small_view_recipes(element: ElementType, nbytes: int, whole: int) -> tuple[ArrayRecipe, ...]:
    """One tensor of a one-byte dtype from the middle of a memory; the whole memory if that is as large."""
    middle = contiguous((nbytes,), name="middle of a large memory", offset=(whole - nbytes) // 2, elements=whole)
    return (recipe(element, contiguous((nbytes,)) if nbytes == whole else middle, Wrap(), seed=0),)
