"""The time that a check has had, which is less than what has passed if other programs kept the cores."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")
_MOST_STRETCHED = 4
"""Nobody waits longer than so many times as long, however busy the machine is."""


class Stopwatch:
    """Runs from the moment at which it is made.

    What a check tries within its time, and so what it can find, then depends little on what else the machine does.

    Args:
        cores: leave out the time in which threads of this process could have run and had no core. Of other processes
            this is not known.
    """

    def __init__(self, *, cores: bool) -> None:
        self._cores = cores
        self._delayed = _delays() if cores else {}
        self._began = time.monotonic()

    def passed(self) -> float:
        """Seconds by the clock on the wall."""
        return time.monotonic() - self._began

    def had(self, limit: float) -> bool:
        """Whether so many seconds were there for the check. Where the system does not tell, all that have passed."""
        passed = self.passed()
        if passed <= limit or not self._cores:
            return passed > limit
        lost = sum(seconds - self._delayed.get(thread, 0.0) for thread, seconds in _delays().items())
        return max(passed - lost, passed / _MOST_STRETCHED) > limit


def _delays() -> dict[str, float]:
    """How long each thread of this process has waited for a core so far; nothing where the system does not tell."""
    delays = {}
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError, IndexError):  # it has just ended, or the system was built without
                delays[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return delays
