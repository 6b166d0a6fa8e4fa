"""Ctrl-C is remembered where Python loses it."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
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


def raised_without_lines(text: str) -> Exception:
    code = compile(text, "nowhere", "exec")
    try:
        exec(code.replace(co_linetable=bytes([0x80 | 15 << 3 | 7] * len(code.co_code))))
    except Exception as error:
        return error
    raise AssertionError(text)


def numbers(error: Exception) -> list[int | None]:
    """Of the lines in its traceback; without one is None, or -1 in older versions of Python 3.11."""
    return [number for _, number in traceback.walk_tb(error.__traceback__)]


def test_errors_that_came_of_each_other() -> None:
    first, second = raised_without_lines("1 / 0"), raised_without_lines("raise KeyError")
    first.__cause__, second.__context__ = second, first
    interrupts.drop_unnumbered(first)
    for error in (first, second):
        assert numbers(error) and None not in numbers(error)


def test_an_error_that_was_only_where_there_are_no_lines() -> None:
    error, context = ValueError(), raised_without_lines("1 / 0")
    assert context.__traceback__ is not None
    error.__context__ = context.with_traceback(context.__traceback__.tb_next)
    interrupts.drop_unnumbered(error)
    assert None not in numbers(context)
