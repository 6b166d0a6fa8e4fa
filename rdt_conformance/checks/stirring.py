"""Lets threads meet inside a transport, wherever that is possible.

A call of a transport is over long before Python lets another thread run, so that two calls hardly ever meet in the
middle of anything. While a process is stirred, every thread now and then rests before a line of the author's code.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from rdt_conformance import author
from rdt_conformance.engines.base import Lane

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.world import Process

_SHARE = 0.25
"""Of the lines before which a thread rests."""
_REST = 20e-6
"""Seconds. The system makes it a little longer; what counts is that others run meanwhile."""


@contextmanager
def stirred(case: Case, *processes: Process) -> Iterator[None]:
    """Interrupt the transport's calls in these processes anywhere, for as long as the body runs.

    Nothing is stirred where a debugger or a measurement of coverage watches the threads already.
    """
    folders = author.folders_of(case.target.transport_class)
    for process in processes:
        for lane in Lane:
            process.run(_begin, folders, lane=lane).result()
    try:
        yield
    finally:
        for process in processes:
            for lane in Lane:
                process.run(_end, lane=lane)  # not waited for, as the lane may be stuck


class _Rest:
    """A trace function, see `sys.settrace`."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders

    def __call__(self, frame: FrameType, event: str, arg: Any) -> _Rest | None:
        if not frame.f_code.co_filename.startswith(self._folders):
            return None
        if event == "line" and random.random() < _SHARE:
            time.sleep(_REST)
        return self


def _begin(worker: Any, folders: tuple[str, ...]) -> None:
    rest = _Rest(folders)
    if sys.gettrace() is None:
        sys.settrace(rest)
    if threading.gettrace() is None:
        threading.settrace(rest)  # for the threads that the transport starts from now on


def _end(worker: Any) -> None:
    if isinstance(sys.gettrace(), _Rest):
        sys.settrace(None)
    if isinstance(threading.gettrace(), _Rest):
        threading.settrace(None)  # pyright: ignore[reportArgumentType]
