"""What is known of threads of the reference without asking the system: who waits, and who follows the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

_awaited: dict[threading.Thread, Callable[[], bool]] = {}


def wait_until(changed: threading.Condition, came: Callable[[], bool], timeout: float | None) -> bool:
    """`changed.wait_for(came, timeout)`, so that `waits` knows of it. `came` takes no lock."""
    own = threading.current_thread()
    _awaited[own] = came
    try:
        return changed.wait_for(came, timeout)
    finally:
        del _awaited[own]


def waits(thread: threading.Thread) -> bool:
    """Whether a thread waits for something that has not come; False if it waits for anything else."""
    came = _awaited.get(thread)
    return came is not None and not came()


class ClockThread(threading.Thread):
    """A thread of the reference that acts by the clock alone: what lanes are about to do does not depend on it."""
