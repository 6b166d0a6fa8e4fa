"""The time that a check has had."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rdt_conformance.checks import stopwatch
from rdt_conformance.checks.stopwatch import Stopwatch


@pytest.fixture
def one_core() -> Iterator[None]:
    """All threads and children of the test have to share one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.mark.usefixtures("one_core")
def test_what_others_had_the_core_for_is_left_out() -> None:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        watch, plain = Stopwatch(cores=True), Stopwatch(cores=False)
        _work(0.4)
        assert watch.passed() > 0.8
        assert plain.had(0.8)
        assert watch.had(0.2)
        assert not watch.had(max(0.7, watch.passed() / 3))
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("cores", [True, False])
def test_waiting_for_something_else_counts(cores: bool) -> None:
    watch = Stopwatch(cores=cores)
    time.sleep(0.05)
    assert watch.had(0.01)


@pytest.mark.usefixtures("one_core")
def test_that_its_own_threads_wait_for_each_other_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_seconds_of_others", lambda: 0.0)  # nobody else is there
    ended = False

    def never_rest() -> None:
        while not ended:
            hashlib.sha256(bytes(1 << 22))  # without Python's lock, so that nothing keeps it from running

    others = [threading.Thread(target=never_rest) for _ in range(2)]
    for other in others:
        other.start()
    try:
        watch = Stopwatch(cores=True)
        _work(0.4)
        assert watch.had(0.7 * watch.passed())
    finally:
        ended = True
        for other in others:
            other.join()


def test_others_are_all_but_this_process() -> None:
    before = stopwatch._seconds_of_others()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert stopwatch._seconds_of_others() - before > 0.25
