"""The time that a check has had, which is less than what has passed if other programs kept the cores."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil

_TASKS = Path("/proc/self/task")
_MOST_STRETCHED = 4
"""Nobody waits longer than so many times as long, however busy the machine is."""


class Stopwatch:
    """Runs from the moment at which it is made.

    What a check tries within its time, and so what it can find, then depends little on what else the machine does.

    Args:
        cores: leave out the time in which threads of this process could have run and others had the cores. Of the
            threads of other processes this is not known.
    """

    def __init__(self, *, cores: bool) -> None:
        self._cores = cores
        self._delayed = _delays() if cores else {}
        self._others = _seconds_of_others() if cores else 0.0
        self._began = time.monotonic()

    def passed(self) -> float:
        """Seconds by the clock on the wall."""
        return time.monotonic() - self._began

    def had(self, limit: float) -> bool:
        """Whether so many seconds were there for the check. Where the system does not tell, all that have passed."""
        return self.passed() > limit and self.share() > limit

    def share(self) -> float:
        """The seconds that were there for the check."""
        passed = self.passed()
        if not self._cores:
            return passed
        lost = sum(seconds - self._delayed.get(thread, 0.0) for thread, seconds in _delays().items())
        # Threads of a transport that never rest wait for each other.
        lost = min(lost, _seconds_of_others() - self._others)
        return max(passed - lost, passed / _MOST_STRETCHED)


def _seconds_of_others() -> float:
    """How long the cores have worked so far for others than this process, also for those beyond a virtual machine."""
    times, own = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
    return busy - getattr(times, "guest_nice", 0.0) - own.user - own.system


def _delays() -> dict[str, float]:
    """How long each thread of this process has waited for a core so far; nothing where the system does not tell."""
    delays = {}
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError, IndexError):  # it has just ended, or the system was built without
                delays[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return delays
