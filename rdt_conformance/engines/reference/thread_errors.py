"""Errors that ended threads of this process, of which nobody would hear: a transport's own, as a rule."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from rdt_conformance import author

_LOCK = threading.Lock()
_listening: list[Listener] = []
_installed: _Hook | None = None


class Listener(Protocol):
    """What such errors are added to, such as a deque."""

    def append(self, told: str, /) -> object:
        """Hear of one."""
        ...


class _Hook:
    """What Python calls for such a thread. Whoever was called before still is.

    Only the newest tells anybody: one that somebody else's hook calls in turn may have to stay where it is.
    """

    def __init__(self, before: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._before = before

    def __call__(self, args: threading.ExceptHookArgs) -> None:
        try:
            if self is _installed and args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
                thread = "thread" if args.thread is None else f"thread {args.thread.name!r}"
                told = f"{thread}:\n{author.traceback_of(args.exc_value)}"
                for heard in list(_listening):
                    heard.append(told)
        finally:
            self._before(args)

    def remove(self) -> None:
        """Give back the place, unless somebody else has taken it meanwhile."""
        if threading.excepthook is self:
            threading.excepthook = self._before


def listen(heard: Listener) -> None:
    """Add each error to `heard` from now on, with the thread's name, whichever thread of the process it was."""
    global _installed
    with _LOCK:
        if threading.excepthook is not _installed:
            threading.excepthook = _installed = _Hook(threading.excepthook)
        _listening.append(heard)


def stop_listening(heard: Listener) -> None:
    """Undo `listen`."""
    global _installed
    with _LOCK:
        _listening[:] = [each for each in _listening if each is not heard]
        if not _listening and _installed is not None:
            _installed.remove()
            _installed = None
