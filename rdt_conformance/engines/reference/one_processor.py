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


class OneProcessor:
    """Keeps the calling thread and some others where the caller is now, until it is told to let go of them.

    Only where the system can do that (Linux), and there is more than one. Threads that these start meanwhile are kept
    there as well, and let go of with them; all others stay as they are.
    """

    def __init__(self, threads: Iterable[Thread]) -> None:
        self._allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set()
        self._one: set[int] = set()
        self._others: set[int] = set()
        if len(self._allowed) > 1:
            self._one = {ctypes.CDLL(None).sched_getcpu()} & self._allowed
        if self._one:
            self._others = self._kept()
            for task in (0, *(thread.native_id or 0 for thread in threads)):
                self._keep(task, self._one)

    def end(self) -> None:
        """Let them run anywhere again."""
        for task in self._kept() - self._others if self._one else ():
            self._keep(task, self._allowed)

    def _kept(self) -> set[int]:
        """The threads of this process that may only run there."""
        kept = set()
        for task in map(int, os.listdir(_TASKS)):
            with suppress(OSError):  # it has ended
                if os.sched_getaffinity(task) == self._one:
                    kept.add(task)
        return kept

    @staticmethod
    def _keep(task: int, processors: set[int]) -> None:
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(task, processors)
