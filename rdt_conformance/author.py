"""Calls the author's code, bounded in time, and shows its errors with the author's frames only."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for one call while a transport is looked at; a loaded machine may need long to import what it uses."""

_OTHERS = (
    str(Path(__file__).parent),
    "/site-packages/hypothesis/",
    "/_pytest/",
    "/pluggy/",
    "/concurrent/futures/",
)
"""Where frames are not the author's, in a traceback of what a transport raised when a check called it."""
_INTERFACE = "ray.experimental.rdt.tensor_transport_manager"
_NOTE = "__rdt_traceback__"
_HARNESS = (*(str(Path(module).parent) + os.sep for module in (__file__, importlib.__file__)), "<frozen importlib")


def folders_of(transport: type) -> tuple[str, ...]:
    """Where the author's code lies: the folders of the class and of those that it is made of, with a separator."""
    given = {*sys.stdlib_module_names, _INTERFACE}
    own = [base for base in transport.__mro__ if not {base.__module__, base.__module__.partition(".")[0]} & given]
    return tuple({os.path.join(os.path.dirname(inspect.getfile(base)), "") for base in own})


class StillRunning(Exception):
    """A call did not come back in time; `frames` tells where it was."""

    def __init__(self, frames: str) -> None:
        super().__init__(f"did not come back within {PATIENCE:g} s")
        self.frames = frames


def call(function: Callable[[], T]) -> T:
    """What `function` returns, called on a thread of its own, as Ray may call a transport on any thread.

    Raises:
        StillRunning: it did not come back within `PATIENCE`; its thread is left behind.
        BaseException: what `function` raised.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(function())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="looking at the transport", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if raised:
        raise raised[0]
    if returned:
        return returned[0]
    where = sys._current_frames().get(thread.ident or 0)
    raise StillRunning(_shown(traceback.extract_stack(where)) if where else "")


def frames(error: BaseException) -> str:
    """The lines of the author's code that `error` came through, oldest first; empty if it never got there."""
    return _shown(traceback.extract_tb(error.__traceback__))


def traceback_of(error: BaseException | None) -> str:
    """The traceback of a transport's exception with our own frames left out; empty if none are the author's."""
    if error is None:
        return ""
    report = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    link: traceback.TracebackException | None = report
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.stack = traceback.StackSummary.from_list(
            [
                # Without columns: to mark them source is parsed, which CPython before 3.11.5 cannot while others do.
                traceback.FrameSummary(frame.filename, frame.lineno, frame.name, line=frame.line)
                for frame in link.stack
                if not any(others in frame.filename for others in _OTHERS)
            ]
        )
        link = link.__cause__ or link.__context__
    return "".join(report.format()).rstrip() if report.stack else getattr(error, _NOTE, "")


def note_traceback(error: BaseException) -> None:
    """Let `traceback_of` know it in another process too: an exception travels without its traceback."""
    error.__dict__[_NOTE] = traceback_of(error)


def describe(error: BaseException) -> str:
    """`error` in the words Python ends a traceback with: its type and message, and the line of a syntax error."""
    return "".join(traceback.format_exception_only(error)).strip()


def _shown(stack: Iterable[traceback.FrameSummary]) -> str:
    return "".join(traceback.format_list([f for f in stack if not _is_harness(f.filename)])).rstrip()


def _is_harness(filename: str) -> bool:
    return filename.startswith(_HARNESS) or filename == threading.__file__
