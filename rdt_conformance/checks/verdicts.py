"""The ways in which an example can end other than well."""

from __future__ import annotations

import functools
import traceback
from pathlib import Path

_OURS = (
    str(Path(__file__).parent.parent),
    "/site-packages/hypothesis/",
    "/_pytest/",
    "/pluggy/",
    "/concurrent/futures/",
)


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


class CheckBroken(AssertionError):
    """What a pytest run sees of a broken check: the whole story as text."""


def authors_frames(error: BaseException | None) -> str:
    """The traceback of a transport's exception with our own frames left out; empty if none are the author's."""
    if error is None:
        return ""
    report = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    link: traceback.TracebackException | None = report
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.stack = traceback.StackSummary.from_list(
            [frame for frame in link.stack if not any(ours in frame.filename for ours in _OURS)]
        )
        link = link.__cause__ or link.__context__
    return "".join(report.format()).rstrip() if report.stack else ""
