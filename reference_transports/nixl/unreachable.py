"""Peers that could not be reached are not tried again at once: UCX loses a socket each time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_FIRST_SECONDS, _LONGEST_SECONDS = 0.1, 5.0
"""How long nothing is tried after the first failure, and at most; after each one it is twice as long."""
_MOST = 1024
"""How many are remembered."""


@dataclass
class _Failure:
    seconds: float
    """How long nothing is tried after it."""
    at: float
    why: str


class Unreachable:
    """Knows peers by what they say of themselves, so that garbled words about one do it no harm. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: OrderedDict[bytes, _Failure] = OrderedDict()

    @contextmanager
    def reaching(self, introduction: bytes) -> Iterator[None]:
        """Try to reach a peer in the body.

        Args:
            introduction: the section by which it introduces itself.

        Raises:
            ConnectionError: it could not be reached a moment ago, and is not tried.
            Exception: that of the body. NIXL's when it cannot connect leaves a socket behind, which nobody can close.
        """
        with self._lock:
            last = self._failures.get(introduction)
        if last is not None and time.monotonic() < last.at + last.seconds:
            raise ConnectionError(f"it could not be reached {time.monotonic() - last.at:.1f} s ago: {last.why}")
        try:
            yield
        except Exception as error:
            seconds = min(2 * last.seconds, _LONGEST_SECONDS) if last else _FIRST_SECONDS
            with self._lock:
                self._failures[introduction] = _Failure(seconds, time.monotonic(), str(error))
                self._failures.move_to_end(introduction)
                while len(self._failures) > _MOST:
                    self._failures.popitem(last=False)
            raise
        if last is not None:
            with self._lock:
                self._failures.pop(introduction, None)
