"""Threads of which only one runs at a time are kept on one processor: to wake one on another takes longer than most of
what they do."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from threading import Thread

_TASKS = "/proc/self/task"
_libc = ctypes.CDLL(None)


class OneProcessor:
    """Keeps the calling thread and some others where the caller is now, until it is told to let go of them.

    Only where the system can do that (Linux), and there is more than one. Threads that these start meanwhile are kept
    there as well, and let go of with them; all others stay as they are. A process that they start stays there.
    """

    def __init__(self, threads: Iterable[Thread]) -> None:
        self._before: dict[int, set[int]] = {}  # of each thread that is kept, where it was allowed
        self._one: set[int] = set()
        self._others: set[int] = set()
        self._allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set()
        if len(self._allowed) < 2:
            return
        self._one = {_libc.sched_getcpu()} & self._allowed
        self._others = self._tasks_there()
        for task in (0, *(thread.native_id or 0 for thread in threads)):
            with suppress(OSError):  # it has ended
                self._before[task] = os.sched_getaffinity(task)
                os.sched_setaffinity(task, self._one)

    def end(self) -> None:
        """Let them run where they could before, and whatever they have started where the caller can."""
        for task, allowed in self._before.items():
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(task, allowed)
        # One that had been about to start another may have done so since: look until there is none. Each is let go of
        # once: it may have settled there itself, or the system may allow it nothing else by now.
        seen = self._others
        while self._before and (started := self._tasks_there() - seen):
            for task in started:
                with suppress(OSError):  # it has ended
                    os.sched_setaffinity(task, self._allowed)
            seen = seen | started

    def _tasks_there(self) -> set[int]:
        """The threads of this process that may run there and nowhere else."""
        there = set()
        for task in map(int, os.listdir(_TASKS)):
            with suppress(OSError):  # it has ended
                if os.sched_getaffinity(task) == self._one:
                    there.add(task)
        return there
