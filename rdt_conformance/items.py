"""What a run needs to know of pytest's tests: which check it is, on which engine, and what came of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rdt_conformance.results import CheckResult, Outcome

if TYPE_CHECKING:
    from rdt_conformance.checks.check import CheckSpec

RESULT = "rdt"
"""The user property that carries a `CheckResult` as JSON text, also from a worker of xdist to its controller."""


def check_of(item: pytest.Item) -> CheckSpec | None:
    """The check that a test is, or None."""
    return getattr(getattr(item, "function", None), "__rdt_check__", None)


def must_check_of(item: pytest.Item) -> CheckSpec:
    """The check that a test is for sure."""
    check = check_of(item)
    assert check is not None, item
    return check


def engine_of(item: pytest.Item) -> str:
    """The engine that a check runs on here."""
    assert isinstance(item, pytest.Function), item
    return str(item.callspec.params["rdt"])


def attach(item: pytest.Item, result: CheckResult) -> None:
    """Let the test carry a result to where it is judged."""
    item.user_properties.append((RESULT, json.dumps(result.to_json())))


def result_of(item: pytest.Item) -> CheckResult:
    """What the test carries; it must carry one."""
    text = next(value for name, value in item.user_properties if name == RESULT)
    return CheckResult.from_json(json.loads(str(text)))


def has_result(item: pytest.Item) -> bool:
    """Whether the test carries one."""
    return any(name == RESULT for name, _ in item.user_properties)


def result_without_run(item: pytest.Item, outcome: Outcome, reason: str) -> CheckResult:
    """The result of a check that did not get to its first example."""
    check = must_check_of(item)
    return CheckResult(check.name, engine_of(item), check.clauses, outcome, reason=reason)
