"""Count what Python itself keeps for as long as a process lives, unless it is taken back, on behalf of a transport."""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable
from typing import Any

FINALIZERS = "weakref.finalize"
EXIT_HANDLERS = "atexit"
LOGGERS = "logging.getLogger"


def standing(is_own: Callable[[object], bool]) -> dict[str, int]:
    """Finalizers, functions to call at exit, and loggers; of finalizers those that watch or call what is a transport's.

    The other two do not tell whose they are. Nobody else adds some for every object.

    Args:
        is_own: whether a function, or an object by its class, is neither Python's nor this suite's.
    """
    counts = {
        FINALIZERS: _finalizers(is_own),
        EXIT_HANDLERS: _exit_handlers(),
        LOGGERS: len(logging.root.manager.loggerDict),
    }
    return {path: number for path, number in counts.items() if number}


def _exit_handlers() -> int:
    """Python's own count keeps those that have been taken back; but to take one back it is compared with all others."""
    counting = _Counting()
    atexit.unregister(counting)
    return counting.compared


class _Counting:
    compared = 0

    def __call__(self) -> None:
        """Never called."""

    def __eq__(self, other: object) -> bool:
        self.compared += 1
        return False

    __hash__ = object.__hash__


def _finalizers(is_own: Callable[[object], bool]) -> int:
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    return sum(is_own(each.func) or is_own(each.weakref()) for each in registry.copy().values())
