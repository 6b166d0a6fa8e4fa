"""What this suite is known to catch: the transports that are wrong on purpose, read off their source.

Read and not imported, as that takes longer than everything else that is done for a report.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdt_conformance import power

_BOUND = re.compile(
    r'^@breaks\("(?P<clause>\w+)".*\)\nclass (?P<name>\w+)|^(?P<made>\w+) = breaks\("(?P<clause_of_made>\w+)"', re.M
)
"""A class that is decorated, or one that a function makes."""


@dataclass(frozen=True)
class Fault:
    """One transport that is wrong on purpose."""

    clause: str
    """The clause that it breaks."""
    name: str
    mistake: str
    """What it does wrong, in a sentence."""
    tried: list[dict[str, Any]] = field(default_factory=list)
    """The `power.Tally.summary` of each profile that is on record."""


def known() -> tuple[list[Fault], list[dict[str, Any]]]:
    """What the suite is known to catch, and how often it was wrong about transports that are right.

    Returns:
        Every transport in ``reference_transports/faulty`` that `breaks` a clause, by file and place; and of each one
        that is right a `power.Tally.summary`, and who.
    """
    tallies = power.load().values()
    faults = _faults()
    by_name = {fault.name: fault for fault in faults}
    for tally in tallies:
        if fault := by_name.get(tally.target.partition(":")[2]):
            fault.tried.append(tally.summary)
    return faults, [{"transport": tally.target} | tally.summary for tally in tallies if not tally.clause]


def _faults() -> list[Fault]:
    package = importlib.util.find_spec("reference_transports")
    folders = (package.submodule_search_locations if package else None) or ()
    return [
        fault for folder in folders for path in sorted(Path(folder, "faulty").glob("*.py")) for fault in _read(path)
    ]


def _read(path: Path) -> Iterator[Fault]:
    source = path.read_text(encoding="utf-8")
    for found in _BOUND.finditer(source):
        name = found["name"] or found["made"]
        yield Fault(found["clause"] or found["clause_of_made"], name, _mistake(name, source))


def _mistake(name: str, source: str) -> str:
    """The first paragraph of the docstring of a class."""
    found = re.search(rf'class {name}\b.*\n\s+"""(?P<told>(?s:.+?))(?:"""|\n\n)', source)
    return " ".join(found["told"].split()) if found else ""
