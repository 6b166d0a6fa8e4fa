"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. Inside a finalizer, such as that of a reference
or of a transport's request, the exception is only printed, and the run would go on. So the key press is remembered, and
whoever comes by next ends the run. "Wherever" also means between two lines, which is more than pytest can print.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

import pytest

_pressed = threading.Event()


@contextmanager
def heeded() -> Iterator[None]:
    """Remember Ctrl-C while the body runs. Does nothing outside of the main thread, which gets no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _pressed.clear()
    before = signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check() -> None:
    """Raises:
    KeyboardInterrupt: Ctrl-C was pressed, and the run has not ended.
    """
    if _pressed.is_set():
        raise KeyboardInterrupt


def pytest_runtest_logstart() -> None:
    """Begin no test after Ctrl-C."""
    check()


@pytest.hookimpl(tryfirst=True)
def pytest_keyboard_interrupt(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Let pytest end a run that was interrupted between two lines."""
    drop_unnumbered(excinfo.value)


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


def _remember(number: int, frame: FrameType | None) -> None:
    _pressed.set()
    signal.default_int_handler(number, frame)
