"""Everything that payloads are drawn from, once each: for what must not be left to chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from rdt_conformance.payloads.layouts import Layout, contiguous, layouts, small_shapes
from rdt_conformance.payloads.recipes import ArrayPayload, ArrayRecipe
from rdt_conformance.payloads.strategies import (
    GAPS,
    NO_DIMENSIONS,
    NO_ELEMENTS,
    PART,
    SEVERAL,
    ElementType,
    Wrap,
    recipe,
)

AnyPayload = TypeVar("AnyPayload", bound=ArrayPayload)

_LONG = (4099,)
"""Long enough that some element of every dtype of up to 32 bits is a NaN with a payload, a denormal, a -0.0."""
_SMALL = 4096
"""Bytes that every other tensor has at most."""
_VIEWED = ((), (3,), (1,), (3, 4), (2, 3, 4), (2, 3, 4, 5))
"""A single element counts as contiguous whatever its stride, and yet cannot be seen as bytes by torch with one of 2."""


def every_contiguous(payload_type: type[AnyPayload], elements: Sequence[ElementType]) -> list[AnyPayload]:
    """Every dtype, as a long tensor, as one without dimensions and as an empty one; and every small shape.

    Args:
        payload_type: of the payloads, each of one tensor.
        elements: the dtypes; small shapes come in the first one.
    """
    samples = [(element, shape) for element in elements for shape in (_LONG, (), (0,))]
    samples += [(elements[0], shape) for shape in small_shapes(elements[0].itemsize, _SMALL)]
    return _payloads(payload_type, [(element, contiguous(shape), Wrap()) for element, shape in samples])


def every_view(payload_type: type[AnyPayload], elements: Sequence[ElementType], *, backwards: bool) -> list[AnyPayload]:
    """Every way to lay out a tensor, alone and next to others in the same memory; all that can be done to one.

    Args:
        payload_type: of the payloads, each of one dtype.
        elements: the dtypes; layouts come in the first one.
        backwards: whether strides may be negative.
    """
    first, plain = elements[0], contiguous((3, 4))
    views = [layout for shape in _VIEWED for layout in layouts(shape, backwards=backwards) if not layout.contiguous]
    samples = [(first, layout, Wrap()) for layout in views]
    samples += [(element, plain, wrap) for element in elements for wrap in element.wraps]
    alone = _payloads(payload_type, samples)
    return alone + [
        payload_type(together) for payload in alone[: len(views)] for together in _together(*payload.recipes)
    ]


def plain_traits(
    payload_type: type[AnyPayload], elements: Sequence[ElementType], byte: ElementType
) -> list[tuple[str, AnyPayload]]:
    """Every trait that plain payloads may have, with a payload that has it.

    Args:
        payload_type: of the payloads.
        elements: the plain dtypes.
        byte: the dtype in which other traits come.
    """
    long, small = contiguous(_LONG), contiguous((3,))
    column = Layout("column", (3,), (3,), 1, 9)
    traits = [(element.name, [(element, long)]) for element in elements]
    traits += [
        (NO_DIMENSIONS, [(byte, contiguous(()))]),
        (NO_ELEMENTS, [(byte, contiguous((0,)))]),
        (SEVERAL, [(byte, small), (byte, small)]),
        (PART, [(byte, contiguous((3,), name="part", offset=3, elements=9))]),
        (GAPS, [(byte, column)]),
    ]
    return [
        (trait, payload_type(tuple(recipe(*each, Wrap(), seed) for seed, each in enumerate(tensors))))
        for trait, tensors in traits
    ]


def _together(view: ArrayRecipe) -> list[tuple[ArrayRecipe, ...]]:
    """A view in one object with itself, with the whole memory that it is a view of, and with that in its own shape."""
    whole = ArrayRecipe(view.memory, contiguous((view.memory.elements,)))
    found = [(view, view), (view, whole), (whole, view)]
    if math.prod(view.layout.shape) == view.memory.elements:  # its dimensions lie in another order, and that is all
        found.append((ArrayRecipe(view.memory, contiguous(view.layout.shape)), view))
    return found


def _payloads(payload_type: type[AnyPayload], samples: Sequence[tuple[ElementType, Layout, Wrap]]) -> list[AnyPayload]:
    return [payload_type((recipe(*sample, seed),)) for seed, sample in enumerate(samples)]
