"""The transports that have a name here, for ``--rdt-list``: those of installed packages and those of Ray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from rdt_conformance import locate
from rdt_conformance.target import Target, TargetProblem, needed_package, resolve, type_name


@dataclass(frozen=True)
class Known:
    """One transport that can be named."""

    target: str
    source: str
    """Which package has it."""
    said: str
    """What it is and what it needs, or why it cannot be judged here."""


def print_known(file: IO[str]) -> None:
    """List every transport that has a name, one line each."""
    rows = list(known_transports())
    widths = [
        max(len(cell) for cell in column) for column in zip(*((row.target, row.source) for row in rows), strict=True)
    ]
    for row in rows:
        print(f"{row.target:<{widths[0]}}  {row.source:<{widths[1]}}  {row.said}", file=file)
    print("\nName one with --transport=NAME; any other is module:Class or path/to/file.py:Class.", file=file)


def known_transports() -> Iterator[Known]:
    """Those in the entry-point group, then those that Ray registers itself. Each is loaded and built once."""
    for name, entries in locate.short_names().items():
        for entry in entries:
            said = _said(name) if len(entries) == 1 else f"not usable: several packages give this name: {entry.value}"
            yield Known(name, locate.giver(entry), said)
    import ray

    for name in locate.names_of_ray():
        yield Known(f"ray:{name}", f"ray {ray.__version__}", _said(f"ray:{name}"))


def _said(target: str) -> str:
    try:
        return _told(resolve(target))
    except TargetProblem as problem:
        return f"not usable here: {str(problem).splitlines()[0]}"


def _told(target: Target) -> str:
    kind = "one-sided" if target.one_sided.value else "two-sided"
    parts = [f"{kind}, {type_name(target.data_type.value)} on {' and '.join(target.devices.value)}"]
    if target.can_abort.value:
        parts.append("can abort")
    if target.needs_process.value:
        parts.append("needs a process for each actor")
    if package := needed_package(target.transport_class):
        parts.append(f"needs the package {package}")
    return "; ".join([*parts, *([target.note.value] if target.note.value else [])])
