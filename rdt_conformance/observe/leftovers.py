"""What is still there after a run that should have left nothing behind."""

from __future__ import annotations

import threading
import time

import psutil

from rdt_conformance.observe import proc
from rdt_conformance.observe.resources import SHARED_MEMORY_FILES, TEMPORARY_FILES, Watch


def left_behind(before: Watch, patience: float = 1.0) -> dict[str, tuple[str, ...]]:
    """Name what a run left outside its own memory, and what would keep the process from ending.

    What another process holds is not counted, unless that is a descendant of this one.

    Args:
        before: a watch made before the run.
        patience: seconds to wait for things to go away, counted anew whenever one does.

    Returns:
        New names of ``shared memory files``, ``temporary files`` and ``child processes``, and of ``threads`` that are
        neither daemons nor the caller's; empty if nothing is left.
    """
    left = _left(before)
    give_up = time.monotonic() + patience
    while left and time.monotonic() < give_up:
        time.sleep(0.01)  # there is no event for another process's end or a file's removal
        earlier, left = left, _left(before)
        if sum(map(len, left.values())) < sum(map(len, earlier.values())):
            give_up = time.monotonic() + patience
    return left


def _left(before: Watch) -> dict[str, tuple[str, ...]]:
    threads = set(threading.enumerate()) - set(before.threads_before) - {threading.current_thread()}
    files = {kind: [path for _, path in before.appeared(kind)] for kind in (SHARED_MEMORY_FILES, TEMPORARY_FILES)}
    elsewhere = _held_by_others() if any(files.values()) else frozenset()
    left = {kind: tuple(path for path in paths if path not in elsewhere) for kind, paths in files.items()}
    left["child processes"] = before.snapshot().names.get("child processes", ())
    left["threads"] = tuple(thread.name for thread in threads if not thread.daemon)
    return {kind: names for kind, names in left.items() if names}


def _held_by_others() -> frozenset[str]:
    """Paths that processes other than this one and its descendants have open or mapped."""
    this = psutil.Process()
    family = {this.pid} | {child.pid for child in this.children(recursive=True)}
    held: set[str] = set()
    for pid in set(psutil.pids()) - family:
        try:
            held |= proc.paths_held(pid)
        except OSError:  # it ended, or is another user's
            continue
    return frozenset(held)
