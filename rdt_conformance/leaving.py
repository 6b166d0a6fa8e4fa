"""Ends the interpreter, with pytest's status, even if a transport left threads that do not end or do not let it end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import Counter

_STARTED_BY_A_TEST = "PYTEST_CURRENT_TEST" in os.environ
"""Whether this process was, as a whole: the plugin is imported before a pytest of this process runs any test."""

_NAME = "rdt leaving"

GRACE = 5.0
"""Seconds for such threads to end by themselves, counted from the end of the main thread."""


def leave_in_time(exit_status: int) -> None:
    """From now on, threads that are left alive delay the end of the interpreter by no more than `GRACE`.

    Python waits at its end for every thread that is not a daemon, and takes the ground from under those that are: one
    that is in the middle of letting go of a tensor then brings the process down. So where any are left, the interpreter
    is not taken apart. Nothing happens before the main thread has ended, so a process that goes on after pytest is not
    disturbed; and nothing at all for a pytest inside another one's test.
    """
    if "PYTEST_CURRENT_TEST" in os.environ and not _STARTED_BY_A_TEST:
        return
    if threading.active_count() > 1:
        atexit.register(_leave_at_once, exit_status)
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    if left:
        threading.Thread(target=_leave, args=(left, exit_status), name=_NAME, daemon=True).start()


def _leave_at_once(exit_status: int) -> None:
    """Do what else is to be done at exit, and leave, if there still are threads."""
    atexit.unregister(_leave_at_once)
    if all(thread is threading.main_thread() or thread.name == _NAME for thread in threading.enumerate()):
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)


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
