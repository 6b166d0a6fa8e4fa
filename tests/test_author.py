"""Whose code is whose."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

from rdt_conformance import author
from reference_transports.inline import InlineTransport

T = TypeVar("T")


class Derived(InlineTransport, Generic[T]):
    """Is made of the standard library's code and Ray's as well."""


def test_neither_the_standard_library_nor_rays_interface_is_the_authors() -> None:
    here, there = Path(__file__).parent, Path(__file__).parent.parent / "reference_transports"
    assert {*author.folders_of(Derived)} == {f"{here}/", f"{there}/"}
