"""Whether threads wait for something, as the system sees it: without asking them, and without giving them time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from threading import Thread

_TASKS = "/proc/self/task"


class Sleepers:
    """Looks at threads of this process; close it in the end.

    Where the system does not tell (anything but Linux), every thread looks asleep.
    """

    def __init__(self) -> None:
        self._files: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        """Let go of what it looks through."""
        for files in self._files.values():
            for file in files:
                os.close(file)
        self._files.clear()

    def look(self, threads: Iterable[Thread]) -> dict[int, bytes] | None:
        """How long each of these threads has run so far; None if one of them runs, or would if it had a processor.

        Two looks that are equal tell that all have been asleep in between, if they could have run: a thread that waits
        for Python's own lock is asleep, too, as long as somebody else holds it.
        """
        ran = {}
        for thread in threads:
            if thread.native_id is None:
                return None
            with suppress(OSError):  # it has ended, or the system does not tell
                state, told = self._open(thread.native_id)
                # "pid (name) state …", and the name may hold anything
                if os.pread(state, 1024, 0).rpartition(b")")[2][1:2] == b"R":
                    return None
                ran[thread.native_id] = os.pread(told, 128, 0)
        return ran

    def _open(self, thread: int) -> tuple[int, int]:
        files = self._files.get(thread)
        if files is None:
            state = os.open(f"{_TASKS}/{thread}/stat", os.O_RDONLY)
            try:
                files = state, os.open(f"{_TASKS}/{thread}/schedstat", os.O_RDONLY)
            except OSError:
                os.close(state)
                raise
            self._files[thread] = files
        return files
