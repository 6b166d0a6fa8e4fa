"""Errors that ended threads of this process which nobody waits for: a transport's own."""

from __future__ import annotations

import threading

from rdt_conformance import author

_LOCK = threading.Lock()
_listening: list[list[str]] = []
_hook_before = threading.excepthook


def listen(heard: list[str]) -> None:
    """Add each error to `heard` from now on, with the thread's name. Whoever was told of them before still is."""
    global _hook_before
    with _LOCK:
        if not _listening and threading.excepthook is not _tell:
            _hook_before, threading.excepthook = threading.excepthook, _tell
        _listening.append(heard)


def stop_listening(heard: list[str]) -> None:
    """Undo `listen`."""
    with _LOCK:
        _listening[:] = [each for each in _listening if each is not heard]
        if not _listening and threading.excepthook is _tell:
            threading.excepthook = _hook_before


def _tell(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        thread = "thread" if args.thread is None else f"thread {args.thread.name!r}"
        for heard in list(_listening):
            heard.append(f"{thread}:\n{author.traceback_of(args.exc_value)}")
    _hook_before(args)
