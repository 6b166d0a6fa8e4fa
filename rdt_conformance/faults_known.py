"""What this suite is known to catch: the transports that are wrong on purpose, read off their source.

Read and not imported, as that takes longer than everything else that is done for a report.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdt_conformance import power

_TRIES = 5


@dataclass(frozen=True)
class Fault:
    """One transport that is wrong on purpose."""

    clause: str
    """The clause that it breaks."""
    name: str
    mistake: str
    """What it does wrong, in a sentence."""
    target: str = ""
    """What names it on the command line."""
    code: str = ""
    """Its source."""
    across_processes: bool = False
    """It breaks nothing as long as all actors share a process."""
    cuda: bool = False
    """It is wrong with GPU memory alone."""
    soak: bool = False
    """It is wrong too rarely for anything but a soak."""
    tried: list[dict[str, Any]] = field(default_factory=list)
    """The `power.Tally.summary` of each profile that is on record."""


def known_faults() -> list[Fault]:
    """Every transport in ``reference_transports/faulty`` that `breaks` a clause, by file and place."""
    return known()[0]


def known() -> tuple[list[Fault], list[dict[str, Any]]]:
    """What the suite is known to catch, and how often it was wrong about transports that are right.

    Returns:
        Every transport in ``reference_transports/faulty`` that `breaks` a clause, by file and place; and of each one
        that is right a `power.Tally.summary`, and who.
    """
    tallies = power.load().values()
    faults = _faults()
    by_target = {fault.target: fault for fault in faults}
    for tally in tallies:
        if fault := by_target.get(tally.target):
            fault.tried.append(tally.summary)
    return faults, [{"transport": tally.target} | tally.summary for tally in tallies if not tally.clause]


def _faults() -> list[Fault]:
    package = importlib.util.find_spec("reference_transports")
    folders = (package.submodule_search_locations if package else None) or ()
    return [
        fault for folder in folders for path in sorted(Path(folder, "faulty").glob("*.py")) for fault in _read(path)
    ]


def _parsed(source: str) -> ast.Module:
    """The syntax tree.

    CPython before 3.11.5 cannot parse while another thread does (python/cpython#106905), and a thread that a transport
    has left behind parses source to show where an error came from.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def _read(path: Path) -> Iterator[Fault]:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = _parsed(source)
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        found = _bound(node)
        if found is None:
            continue
        name, binding = found
        kind = classes[name]
        # A class that a function makes is shown with that function.
        shown = next(outer for outer in tree.body if outer.lineno <= kind.lineno <= (outer.end_lineno or 0))
        told = (ast.get_docstring(kind) or "").partition("\n\n")[0]
        yield Fault(
            clause=ast.literal_eval(binding.args[0]),
            name=name,
            mistake=" ".join(told.split()),
            target=f"reference_transports.faulty.{path.stem}:{name}",
            code="\n".join(lines[shown.lineno - 1 : shown.end_lineno]),
            **{str(told.arg): ast.literal_eval(told.value) for told in binding.keywords},
        )


def _bound(node: ast.stmt) -> tuple[str, ast.Call] | None:
    """The name of a transport and the ``breaks(…)`` that binds it: a decorator, or applied to what a function made."""
    if isinstance(node, ast.ClassDef):
        return next(((node.name, call) for call in node.decorator_list if _is_breaks(call)), None)  # type: ignore[misc]
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_breaks(node.value.func):
        (target,) = node.targets
        assert isinstance(target, ast.Name) and isinstance(node.value.func, ast.Call)
        return target.id, node.value.func
    return None


def _is_breaks(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "breaks"
