"""Which checks can decide which clauses, read off the suites themselves."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from rdt_conformance import paths


def checks_by_clause() -> dict[str, list[str]]:
    """For each clause id, the names of the checks that list it. Imports every suite, but runs none."""
    covering: dict[str, list[str]] = {}
    for path in paths.suite_files():
        for value in vars(_load(path)).values():
            if check := getattr(value, "__rdt_check__", None):
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
