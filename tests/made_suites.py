"""Runs pytest with the plugin inside this process, on suites that are written here."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

# Pytester forgets what a run inside this process imports, and some of these cannot be imported twice.
import rdt_conformance.clause_table
import rdt_conformance.session  # noqa: F401
import reference_transports.inline  # noqa: F401
from rdt_conformance import paths

INSTALLED = bool(entry_points(group="pytest11", name="rdt_conformance"))
LOADED = () if INSTALLED else ("-p", "rdt_conformance.plugin")
"""How a run gets the plugin: pytest refuses to load it by name where it loads it as an installed one."""


TARGET = "reference_transports.inline:InlineTransport"
BRIEF = ("--no-rdt-report", "--rdt-profile=quick")

CHECKS = """
    import pytest
    from rdt_conformance.checks import Case, check

    @check("L1")
    def test_works(case: Case) -> None:
        source, destination = case.actors(2)
        payload = case.payload()
        case.arrived(case.ok(destination.consume(source.produce(payload))), payload)

    @check("A1")
    def test_of_abort(case: Case) -> None:
        raise AssertionError("inline cannot abort: this must not run")
"""
BROKEN = """
    @check("L2")
    def test_broken(case: Case) -> None:
        case.require(False, "L2", "the second receiver got nothing")
"""
ADVICE = """
    @check("G3b")
    def test_advice(case: Case) -> None:
        case.advise(False, "G3b", "it raised")
"""
CRASH = """
    @check("L3")
    def test_crash(case: Case) -> None:
        raise ZeroDivisionError("our fault")
"""
NOT_RUN = """
    @check("L4")
    def test_not_run(case: Case) -> None:
        raise case.cannot("no room for it here")
"""

NO_CACHE = ("-p", "no:cacheprovider")

Run = Callable[..., pytest.RunResult]


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a folder stand for the shipped suites."""
    real = paths.data_folder
    monkeypatch.setattr(paths, "data_folder", lambda name: folder if name == "suites" else real(name))
    (folder / "test_shipped.py").write_text(textwrap.dedent(CHECKS))
    return folder


def runner(pytester: pytest.Pytester, suites: Path) -> Run:
    """Runs pytest with the plugin inside this process, without a report unless one is asked for."""

    def run_pytest(*args: str, more: str = "", transport: str = TARGET) -> pytest.RunResult:
        (suites / "test_shipped.py").write_text(textwrap.dedent(CHECKS) + textwrap.dedent(more))
        given = (f"--transport={transport}",) if transport else ()
        brief = [option for option in BRIEF if not _mentions(args, option.removeprefix("--"))]
        return pytester.runpytest_inprocess(*LOADED, *given, *(brief if transport else ()), *args, *NO_CACHE)

    return run_pytest


def _mentions(args: Iterable[str], option: str) -> bool:
    name = option.removeprefix("no-").partition("=")[0]
    return any(name in arg for arg in args)
