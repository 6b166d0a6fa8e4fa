"""Runs single checks on the local engine, inside this process."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rdt_conformance import paths
from rdt_conformance.checks import CheckBroken
from rdt_conformance.checks.bench import Bench
from rdt_conformance.engines.engines import Engines
from rdt_conformance.results import CheckResult
from rdt_conformance.selection import DONE_KNOWINGLY
from rdt_conformance.target import Fact, Target


def bench_of(transport: type, data_type: type) -> Bench:
    """A bench for a class that needs no looking at."""
    return bench_on(_target_of(transport, data_type))


def bench_on(target: Target) -> Bench:
    """A bench for a target, on the local engine."""
    # Alone, as a replay is: what is tried must not depend on how fast the machine is at the moment.
    return Bench(target, "local", Engines().start, "quick", seed=1, alone=True)


def _target_of(transport: type, data_type: type) -> Target:
    instance = transport()
    return Target(
        spec=transport.__name__,
        transport_class=transport,
        name=Fact(instance.tensor_transport_backend(), "test"),
        devices=Fact(("cpu",), "test"),
        data_type=Fact(data_type, "test"),
        one_sided=Fact(transport.is_one_sided(), "test"),
        can_abort=Fact(instance.can_abort_transport(), "test"),
        own_fetch=Fact(False, "test"),
        needs_process=Fact(False, "test"),
        note=Fact("", "test"),
    )


@cache
def _suite(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"suite_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[f"suite_{path.stem}"] = importlib.util.module_from_spec(spec)  # where dataclasses look
    spec.loader.exec_module(module)
    return module


def run_check(bench: Bench, check: str | Callable[[Bench], None]) -> CheckResult:
    """What one check finds, one of the suites if it is given by name."""
    results: list[CheckResult] = []
    bench.record = results.append
    with contextlib.suppress(CheckBroken, pytest.skip.Exception), warnings.catch_warnings():
        warnings.filterwarnings("ignore", DONE_KNOWINGLY)  # as where the plugin runs it
        (check_named(check) if isinstance(check, str) else check)(bench)
    (result,) = results
    return result


def check_named(name: str) -> Any:
    """The test function of one check of the suites."""
    path = next(path for path in paths.suite_files() if f"def {name}(" in path.read_text())
    return getattr(_suite(path), name)
