"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. Inside a finalizer, such as that of a reference
or of a transport's request, the exception is only printed, and the run would go on. So the key press is remembered, and
whoever comes by next ends the run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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


def _remember(number: int, frame: FrameType | None) -> None:
    _pressed.set()
    signal.default_int_handler(number, frame)
