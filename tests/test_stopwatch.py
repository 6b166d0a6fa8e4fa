"""The time that a check has had."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rdt_conformance.checks.stopwatch import Stopwatch


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_what_others_had_the_core_for_is_left_out() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        watch, plain = Stopwatch(cores=True), Stopwatch(cores=False)
        _work(0.4)
        assert watch.passed() > 0.8
        assert plain.had(0.8)
        assert watch.had(0.2)
        assert not watch.had(max(0.7, watch.passed() / 3))
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("cores", [True, False])
def test_waiting_for_something_else_counts(cores: bool) -> None:
    watch = Stopwatch(cores=cores)
    time.sleep(0.05)
    assert watch.had(0.01)
