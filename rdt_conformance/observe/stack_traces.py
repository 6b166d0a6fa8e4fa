"""Show where threads are."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from rdt_conformance.paths import data_folder

_HARNESS = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).resolve().parents[1], data_folder("suites")))
_RUNNERS = frozenset({"_pytest", "pluggy"})
_AROUND = sys.stdlib_module_names | {"ray", "hypothesis"}


def stacks(threads: Iterable[threading.Thread | int]) -> str:
    """Write down where threads are, as their author would want to see it.

    Calls of the test runner, of this suite and of the standard library that led to the author's code are left out.

    Args:
        threads: threads or their ``ident``.

    Returns:
        One paragraph per thread, outermost call first.
    """
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    paragraphs: list[str] = []
    for thread in threads:
        ident = thread if isinstance(thread, int) else thread.ident
        name = names.get(ident, str(ident)) if isinstance(thread, int) else thread.name
        frame = frames.get(ident) if ident is not None else None
        paragraphs.append(f"thread {name}:\n{_calls(frame)}" if frame else f"thread {name}: not running")
    return "\n".join(paragraphs)


def _calls(innermost: FrameType) -> str:
    frames = [frame for frame, _ in traceback.walk_stack(innermost)][::-1]
    entered = max((index + 1 for index, frame in enumerate(frames) if _root(frame) in _RUNNERS), default=0)
    while entered < len(frames) and _is_around(frames[entered]):
        entered += 1
    calls = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames[entered:] or frames[-1:])
    return "\n".join(f"  {_place(call.filename)}:{call.lineno} in {call.name}\n    {call.line}" for call in calls)


def _is_around(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    # Ray's own transports are authors' code like any other.
    if module.startswith("ray.experimental.rdt.") and module.endswith("transport"):
        return False
    return _root(frame) in _AROUND or frame.f_code.co_filename.startswith(_HARNESS)


def _root(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


def _place(filename: str) -> str:
    """A file as seen from the working directory, if it is below."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
