"""The decorator that makes a check of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rdt_conformance.checks.bench import Bench
from rdt_conformance.checks.case import Case
from rdt_conformance.checks.examine import Examination
from rdt_conformance.checks.verdicts import CheckBroken
from rdt_conformance.contract import clause as clause_of
from rdt_conformance.report import story
from rdt_conformance.results import GONE, CheckResult

_Test = Callable[[Bench], None]
"""What pytest runs."""


@dataclass(frozen=True)
class CheckSpec:
    """What is known about a check before it runs.

    Args:
        name: the test function's name.
        clauses: the clauses it decides; the first one says for which transports and engines the check is, and
            takes failures that name no clause.
        situational: clauses that count as exercised only if an example witnessed them (`Case.witness`). The others are
            exercised by any example that comes to its end.
        sends: it sends objects; without this it runs also for a transport that refuses them all.
        body: the check itself.
    """

    name: str
    clauses: tuple[str, ...]
    situational: frozenset[str]
    sends: bool
    body: Callable[..., object]
    ray_limit: str = ""
    """What Ray itself does not do right in the situation, so that nothing can be learnt about a transport there; empty
    if it does. Such a check is not run on the ray engine."""
    tries: int = 1
    """How many times as much as others it may try and take, since what it looks for is rare."""
    interleaves: bool = False
    """It decides the order in which threads go on, which it can on the local engine only."""
    engine: str = ""
    """The engine that it is for, if it is for one alone."""
    profiles: tuple[str, ...] = ()
    """The profiles in which it runs; empty: all in which there are more checks than one."""


def check(
    *clauses: str,
    situational: tuple[str, ...] = (),
    ray_limit: str = "",
    sends: bool = True,
    tries: int = 1,
    interleaves: bool = False,
) -> Callable[[Callable[[Case], None]], _Test]:
    """Make a pytest test of a function that takes a `Case`.

    Raises:
        KeyError: a clause is not in the register.
    """
    for clause in (*clauses, *situational):
        clause_of(clause)

    def decorate(body: Callable[[Case], None]) -> _Test:
        name = body.__name__
        decided = tuple(dict.fromkeys((*clauses, *situational)))
        spec = CheckSpec(name, decided, frozenset(situational), sends, body, ray_limit, tries, interleaves)

        def run(rdt: Bench) -> None:
            examination = Examination(spec, rdt)
            result = examination.run()
            rdt.record(result)
            if result.outcome == "error" and examination.crash is not None:
                raise examination.crash
            if result.outcome == "not run":
                pytest.skip(result.reason)
            if result.outcome == "broken":
                raise CheckBroken("\n\n".join(story.render(failure) for failure in result.failures))

        return _as_test(run, body, spec)

    return decorate


def self_check(engine: str, profiles: tuple[str, ...]) -> Callable[[Callable[[Bench], CheckResult]], _Test]:
    """Make a pytest test of a function that looks at this suite itself, with the transport under test.

    What it finds is never the transport's fault, and there is no verdict as long as something is wrong.
    """
    return whole_check(engine=engine, profiles=profiles)


NOT_AGAIN = f"{GONE}, all else being the same, but for what the clock decides"


def whole_check(
    *clauses: str, engine: str, profiles: tuple[str, ...]
) -> Callable[[Callable[[Bench], CheckResult]], _Test]:
    """Make a pytest test of a function that has a bench to itself and says what came of it, without examples.

    Args:
        clauses: those that it can decide.
        engine: the one that it is for.
        profiles: those in which it runs.
    """

    def decorate(body: Callable[[Bench], CheckResult]) -> _Test:
        situational = frozenset(clauses)
        spec = CheckSpec(body.__name__, clauses, situational, sends=True, body=body, engine=engine, profiles=profiles)

        def run(rdt: Bench) -> None:
            result = body(rdt)
            rdt.pace.took(0)  # what it does has a number, or a time of its own
            if rdt.replay is not None and result.outcome == "passed":
                result.outcome, result.reason = "not run", NOT_AGAIN
            rdt.record(result)
            if result.outcome == "not run":
                pytest.skip(result.reason)
            if result.outcome == "error":
                raise CheckBroken(result.reason)
            if result.outcome == "broken":
                raise CheckBroken("\n\n".join(story.render(failure) for failure in result.failures))

        return _as_test(run, body, spec)

    return decorate


def _as_test(run: _Test, body: Callable[..., object], spec: CheckSpec) -> _Test:
    # Not functools.wraps: pytest would follow __wrapped__ and look for the body's parameters.
    for attribute in functools.WRAPPER_ASSIGNMENTS:
        if attribute != "__annotations__":
            setattr(run, attribute, getattr(body, attribute))
    run.__rdt_check__ = spec  # type: ignore[attr-defined]
    return run
