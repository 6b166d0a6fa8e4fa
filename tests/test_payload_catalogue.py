"""The catalogue leaves nothing out that payloads are drawn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from payload_tools import KINDS

BOTH_KINDS = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
TRAITS: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda recipe: recipe.memory.dtype,
    "layout": lambda recipe: (len(recipe.layout.shape), recipe.layout.name),
    "wrap": lambda recipe: (recipe.memory.dtype, recipe.wrap, recipe.memory.origin),
}


def _all_of(kind: Any) -> list[Any]:
    return [*kind.every_contiguous(), *kind.every_view()]


@BOTH_KINDS
def test_every_payload_can_be_built_and_compared(kind):
    for payload in _all_of(kind):
        assert payload.differences(payload.build()) == []


@BOTH_KINDS
def test_contiguous_ones_are_contiguous_and_views_are_more_than_that(kind):
    recipes = [recipe for payload in kind.every_contiguous() for recipe in payload.recipes]
    assert all(recipe.layout.contiguous and not recipe.wrap and not recipe.memory.origin for recipe in recipes)
    assert all(str(payload) != str(payload.plain()) for payload in kind.every_view())


@BOTH_KINDS
@pytest.mark.parametrize("trait", TRAITS.values(), ids=TRAITS.keys())
def test_whatever_is_drawn_is_in_the_catalogue(kind, trait):
    known = {trait(recipe) for payload in _all_of(kind) for recipe in payload.recipes}

    @settings(max_examples=100, database=None, deadline=None)
    @given(kind.payloads(min_tensors=1, max_tensors=1))
    def is_known(payload):
        (recipe,) = payload.recipes
        if len(recipe.layout.shape) <= 4:  # more dimensions lie in memory in no other ways
            assert trait(recipe) in known

    is_known()


@BOTH_KINDS
@given(data=st.data())
@settings(max_examples=50, database=None, deadline=None)
def test_plain_tensors_have_the_same_dtypes_and_shapes_and_share_nothing(kind, data):
    payload = data.draw(kind.payloads())
    plain = payload.plain().build()
    assert kind.metas(plain) == kind.metas(payload.build())
    assert kind.traits(plain) == []
    assert not any(kind.share_memory(a, b) for n, a in enumerate(plain) for b in plain[:n])
