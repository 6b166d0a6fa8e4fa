"""Ctrl-C that is not lost, and SIGTERM, by which CI systems end what takes too long, treated alike.

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

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_received: list[int] = []
"""During the run at hand."""


@contextmanager
def heeded() -> Iterator[None]:
    """Remember these signals while the body runs. Does nothing outside of the main thread, which gets none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received.clear()
    before = {number: signal.signal(number, _remember) for number in _NAMES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _remember(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    signal.default_int_handler(signal.SIGINT, frame)
