"""The register as a listing for ``--rdt-clauses``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rdt_conformance import contract
from rdt_conformance.contract import Area, Clause, Level

PLAIN_WIDTH = 120
"""Columns when the output is no terminal, and so has no width of its own."""

STYLES = {Level.MUST: "bold red", Level.SHOULD: "yellow", Level.REPORT: "cyan"}


def print_clauses(coverage: Mapping[str, Sequence[str]], file: IO[str]) -> None:
    """List every clause of the contract, one table for each area.

    Args:
        coverage: for each clause id, the names of the checks that can decide it.
        file: where to; a terminal gets colours and its own width, anything else plain text.
    """
    console = Console(file=file, highlight=False, width=None if file.isatty() else PLAIN_WIDTH)
    for area, clauses in contract.by_area().items():
        console.print(_area_table(area, clauses, coverage))
        console.print()
    levels = Counter(entry.level for entry in contract.CLAUSES.values())
    console.print(f"{len(contract.CLAUSES)} clauses: " + ", ".join(f"{levels[level]} {level.value}" for level in Level))


def _area_table(area: Area, clauses: Sequence[Clause], coverage: Mapping[str, Sequence[str]]) -> Table:
    table = Table(title=area.value.upper(), title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("id", no_wrap=True, min_width=3)
    table.add_column("level", no_wrap=True, min_width=6)
    table.add_column("applies to", max_width=20)
    table.add_column("what the transport owes", min_width=40)
    table.add_column("checks", overflow="fold")
    for entry in clauses:
        table.add_row(
            entry.id,
            Text(entry.level.value, style=STYLES[entry.level]),
            entry.applies.value,
            Text(entry.sentence),
            Text(_checks(entry, coverage)),
        )
    return table


def _checks(entry: Clause, coverage: Mapping[str, Sequence[str]]) -> str:
    if names := coverage.get(entry.id):
        return "\n".join(names)
    return f"not tested: {entry.untested}" if entry.untested else "no check"
