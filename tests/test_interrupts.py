"""Ctrl-C is remembered where Python loses it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
import weakref
from collections.abc import Iterator

import pytest

from rdt_conformance import interrupts


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """The handlers, which stay until pytest ends if there was a signal."""
    yield
    interrupts.pytest_unconfigure()


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
    interrupts.pytest_unconfigure()
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


def test_a_second_one_at_once_is_the_same_one_again() -> None:
    """``timeout`` sends one to the process and one to its group."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt), interrupts.heeded():
        os.kill(os.getpid(), signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT):  # while the report is written
        os.kill(os.getpid(), number)
    assert interrupts.told() == "the run was ended early by SIGTERM"
    interrupts.pytest_unconfigure()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_helper_that_was_forked_ends_as_ever() -> None:
    reading, writing = os.pipe()
    with interrupts.heeded():
        helper = os.fork()
        if not helper:
            os.write(writing, b"forked")
            time.sleep(30)
            os._exit(1)
        os.read(reading, 6)
        os.kill(helper, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(helper, 0)[1]) == signal.SIGTERM


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupts.heeded():
            os.kill(os.getpid(), signal.SIGTERM)
            interrupts.check()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
