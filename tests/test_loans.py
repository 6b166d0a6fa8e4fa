"""What is lent to other processes, and how long it is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from reference_transports._loans import Borrowed, Lent

SOON = 20.0
"""Seconds within which whatever should happen has happened, on a machine that is busy with other things."""
ROOT = Path(__file__).parent.parent
BORROW = """
import sys
from reference_transports._loans import Borrowed
borrowed = Borrowed({pid}, {fd}, {pipe})
print("borrowed", flush=True)
sys.stdin.read()
"""


class Thing:
    """Something to lend."""


def lend() -> tuple[Lent, weakref.ref[Thing]]:
    thing = Thing()
    return Lent(thing), weakref.ref(thing)


def borrow_elsewhere(lent: Lent) -> subprocess.Popen[str]:
    code = BORROW.format(pid=os.getpid(), fd=lent.fd, pipe=lent.pipe)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None and process.stdout.readline() == "borrowed\n"
    return process


def is_gone(thing: weakref.ref[Thing]) -> bool:
    give_up = time.monotonic() + SOON
    while thing() is not None and time.monotonic() < give_up:
        time.sleep(0.002)
    return thing() is None


def test_what_nobody_borrows_is_gone_when_it_is_lent_no_more() -> None:
    lent, thing = lend()
    files = len(os.listdir("/proc/self/fd"))
    lent.close()
    assert thing() is None and len(os.listdir("/proc/self/fd")) == files - 1
    lent.close()


def test_what_is_lent_is_gone_with_the_loan() -> None:
    lent, thing = lend()
    del lent
    assert thing() is None


@pytest.mark.parametrize("end", ["lets go", "is killed"])
def test_it_is_kept_until_the_last_borrower(end: str) -> None:
    lent, thing = lend()
    there, here = borrow_elsewhere(lent), Borrowed(os.getpid(), lent.fd, lent.pipe)
    with there:
        lent.close()
        here.close()
        here.close()
        time.sleep(0.05)
        assert thing() is not None
        there.kill() if end == "is killed" else there.communicate()
        assert is_gone(thing)


def test_a_borrower_may_let_go_and_another_come_meanwhile() -> None:
    lent, thing = lend()
    for _ in range(3):
        Borrowed(os.getpid(), lent.fd, lent.pipe).close()
    assert thing() is not None
    last = Borrowed(os.getpid(), lent.fd, lent.pipe)
    lent.close()
    assert thing() is not None
    del last
    assert is_gone(thing)


def test_nobody_borrows_what_is_lent_no_more_nor_anything_else() -> None:
    lent, thing = lend()
    fd, pipe = lent.fd, lent.pipe
    keeps_it = Borrowed(os.getpid(), fd, pipe)
    lent.close()
    another, _ = lend()  # may have the same number
    files = len(os.listdir("/proc/self/fd"))
    for wrong in ((os.getpid(), fd, pipe), (os.getpid(), another.fd, pipe), (2**22 + 1, fd, pipe)):
        with pytest.raises(LookupError):
            Borrowed(*wrong)
    assert len(os.listdir("/proc/self/fd")) == files
    keeps_it.close()
    assert is_gone(thing)
