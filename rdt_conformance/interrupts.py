"""Ctrl-C that is not lost, and SIGTERM, by which CI systems end what takes too long, treated alike.

Python raises KeyboardInterrupt wherever the main thread happens to be. Inside a finalizer, such as that of a reference
or of a transport's request, the exception is only printed, and the run would go on. So the key press is remembered, and
whoever comes by next ends the run. "Wherever" also means between two lines, which is more than pytest can print.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import pytest

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_AT_ONCE = 1.0
"""Seconds in which a second signal is only the same one again: ``timeout`` sends two."""
_received: list[int] = []
"""During the run at hand."""
_first_at = 0.0
_before: dict[int, Any] = {}
"""The handlers that are to be put back."""


@contextmanager
def heeded() -> Iterator[None]:
    """Remember these signals while the body runs, and what has ended the run until pytest ends.

    Does nothing outside of the main thread, which gets no signals. A signal that is ignored stays ignored.
    """
    _put_back()
    _received.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def remember(number: int, frame: FrameType | None) -> None:
        _remember(owner, number, frame)

    for number in _NAMES:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: not Python's
            _before[number] = signal.signal(number, remember)
    try:
        yield
    finally:
        if not _received:
            _put_back()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """The report is written."""
    _put_back()


def _put_back() -> None:
    while _before:
        signal.signal(*_before.popitem())


def check() -> None:
    """Raises:
    KeyboardInterrupt: the run is to end, and has not ended.
    """
    if _received:
        raise KeyboardInterrupt


def told() -> str:
    """How a run ended that did not come to its end."""
    by = [f" by {_NAMES[signal.Signals(number)]}" for number in _received[:1]]  # it may not have been a signal
    return f"the run was ended early{''.join(by)}"


def pytest_runtest_logstart() -> None:
    """Begin no test after that."""
    check()


@pytest.hookimpl(tryfirst=True)
def pytest_keyboard_interrupt(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Let pytest end a run that was interrupted between two lines, and say where it was, not where this file is."""
    drop_unnumbered(excinfo.value)
    elsewhere = [
        place for place in _places(excinfo.value.__traceback__) if place.tb_frame.f_code.co_filename != __file__
    ]
    if elsewhere:
        elsewhere[-1].tb_next = None


def drop_unnumbered(error: BaseException | None) -> None:
    """Take the places that have no line number out of a traceback.

    What a signal's handler raises may come from code that Python made up by itself, such as the end of a ``with``.
    pytest takes each place to have a line, and breaks over one that has none instead of ending the run.
    """
    seen: set[int] = set()
    errors = [error]
    while errors:
        each = errors.pop()
        if each is None or id(each) in seen:  # one may have come of another that came of it
            continue
        seen.add(id(each))
        errors += [each.__cause__, each.__context__]
        numbered = [place for place in _places(each.__traceback__) if place.tb_lineno is not None]
        for place, following in itertools.zip_longest(numbered, numbered[1:]):
            place.tb_next = following
        each.__traceback__ = numbered[0] if numbered else None


def _places(place: TracebackType | None) -> Iterator[TracebackType]:
    while place is not None:
        yield place
        place = place.tb_next


def _remember(owner: int, number: int, frame: FrameType | None) -> None:
    global _first_at
    if os.getpid() != owner:  # a helper that a transport has forked
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
    elif not _received:
        _first_at = time.monotonic()
        _received.append(number)
    elif number == signal.SIGTERM or time.monotonic() < _first_at + _AT_ONCE:
        return
    signal.default_int_handler(signal.SIGINT, frame)
