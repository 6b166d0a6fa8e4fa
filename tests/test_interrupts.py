"""Ctrl-C is remembered where Python loses it."""

from __future__ import annotations

import contextlib
import os
import signal
import weakref

import pytest

from rdt_conformance import interrupts


class Thing:
    pass


def test_lost_in_a_finalizer_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: None)
    thing = Thing()
    weakref.finalize(thing, os.kill, os.getpid(), signal.SIGINT)
    handler = signal.getsignal(signal.SIGINT)
    with interrupts.heeded():
        interrupts.check()
        with contextlib.suppress(KeyboardInterrupt):  # Python may deliver the signal after the finalizer
            del thing
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGINT) is handler


def test_forgotten_by_the_next_run() -> None:
    with interrupts.heeded(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    with interrupts.heeded():
        interrupts.check()
