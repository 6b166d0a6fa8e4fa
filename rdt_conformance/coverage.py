"""Which checks can decide which clauses, read off the suites themselves."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rdt_conformance import paths

if TYPE_CHECKING:
    from rdt_conformance.checks.check import CheckSpec


def all_checks() -> list[CheckSpec]:
    """Every check, suite by suite. Imports every suite, but runs none."""
    values = [value for path in paths.suite_files() for value in vars(_load(path)).values()]
    return [value.__rdt_check__ for value in values if hasattr(value, "__rdt_check__")]


def checks_by_clause() -> dict[str, list[str]]:
    """For each clause id, the names of the checks that list it."""
    covering: dict[str, list[str]] = {}
    for check in all_checks():
        for clause in check.clauses:
            covering.setdefault(clause, []).append(check.name)
    return covering


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"rdt_suite_{path.stem}", path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
