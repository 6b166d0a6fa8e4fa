"""Ends the interpreter even if a transport left threads that do not."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter

GRACE = 5.0
"""Seconds for such threads to end by themselves, counted from the end of the main thread."""


def leave_in_time(exit_status: int) -> None:
    """From now on, threads that are left alive delay the end of the interpreter by no more than `GRACE`.

    Python waits at its end for every thread that is not a daemon. Nothing happens before the main thread has ended, so
    a process that goes on after pytest is not disturbed.
    """
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    if left:
        threading.Thread(target=_leave, args=(left, exit_status), name="rdt leaving", daemon=True).start()


def _leave(threads: list[threading.Thread], exit_status: int) -> None:
    threading.main_thread().join()
    deadline = time.monotonic() + GRACE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    alive = Counter(thread.name for thread in threads if thread.is_alive())
    if alive:
        names = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in alive.items())
        print(f"rdt-conformance: threads were left that do not end: {names}; leaving all the same")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_status)
