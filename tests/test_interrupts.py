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


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "ValueError"])
def test_between_two_lines(raised: str, pytester: pytest.Pytester) -> None:
    file = pytester.makepyfile(
        f"""
        def test_it():
            raises = compile("raise {raised}('cut short')", "nowhere", "exec")
            without_location = 0x80 | 15 << 3 | 7  # an entry of the table of lines, for eight instructions
            exec(raises.replace(co_linetable=bytes([without_location] * len(raises.co_code))))
        """
    )
    result = pytester.runpytest_subprocess("--transport=inline", file)
    assert result.ret == (
        pytest.ExitCode.INTERRUPTED if raised == "KeyboardInterrupt" else pytest.ExitCode.TESTS_FAILED
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    result.stdout.re_match_lines([f".*(1 failed|{raised})"])
