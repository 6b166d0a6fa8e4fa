"""The ways in which an example can end other than well."""

from __future__ import annotations

import functools

import pytest


class Broken(AssertionError):
    """A clause does not hold.

    Raised as a subclass of its own per clause (see `broken`), so that Hypothesis never mistakes one clause's failure
    for another's while it shrinks.
    """

    clause: str

    def __init__(self, happened: str, stacks: str = "") -> None:
        super().__init__(happened)
        self.happened = happened
        self.stacks = stacks


@functools.cache
def _broken_type(clause: str) -> type[Broken]:
    return type(f"Broken{clause}", (Broken,), {"clause": clause})


def broken(clause: str, happened: str, stacks: str = "") -> Broken:
    """The exception that says that `clause` does not hold."""
    return _broken_type(clause)(happened, stacks)


class NotExercised(Exception):
    """The check applies but cannot be carried out here; its clauses stay unknown."""


class CheckBroken(pytest.fail.Exception):
    """What a pytest run sees of a broken check: the whole story as text.

    For pytest a failure without a traceback. To format one it would parse our source, which CPython 3.11 does not do
    right while threads that hang in a transport do the same.
    """

    def __init__(self, story: str) -> None:
        super().__init__(story, pytrace=False)
