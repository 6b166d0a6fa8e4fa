"""Known deviations: clauses that are listed, with reason, link and a last day, as broken and accepted until then.

A file of them is TOML::

    [[deviation]]
    clause = "G3b"
    engine = "all"                  # or local, cluster, ray; all if left out
    reason = "the driver logs a warning when it is told twice"
    link = "https://example.com/issues/17"
    expires = 2027-01-31            # the last day on which it is accepted
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from pathlib import Path
from typing import Any

from rdt_conformance import contract
from rdt_conformance.contract import EVERYWHERE, Level

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]  # what became tomllib, for Python 3.10

ALL = "all"
"""Stands for every engine."""
_TABLE = "deviation"


class DeviationsProblem(Exception):
    """The file cannot be used. The message is one line for the user."""


@dataclass(frozen=True)
class Deviation:
    """One clause that is known not to hold, and why that is accepted for now."""

    clause: str
    engine: str
    """A name of an engine, or `ALL`."""
    reason: str
    link: str
    expires: date
    """The last day on which it is accepted."""

    def covers(self, clause: str, engine: str) -> bool:
        """Whether it speaks of this clause on this engine."""
        return clause == self.clause and self.engine in (engine, ALL)

    def to_json(self) -> dict[str, str]:
        """The deviation as JSON-ready data."""
        return {**vars(self), "expires": self.expires.isoformat()}

    def __str__(self) -> str:
        return self.clause if self.engine == ALL else f"{self.clause} on {self.engine}"


@dataclass(frozen=True)
class Deviations:
    """What is listed, and the day of the run, by which it is judged what has expired."""

    entries: tuple[Deviation, ...]
    file: str
    """As the user named it."""
    today: date

    def accepted(self, clause: str, engine: str) -> Deviation | None:
        """The entry by which it does not matter that this clause does not hold here; None if there is none."""
        found = (entry for entry in self.entries if entry.covers(clause, engine) and not self.expired(entry))
        return next(found, None)

    def expired(self, entry: Deviation) -> bool:
        """Whether an entry's last day is over."""
        return entry.expires < self.today

    def to_json(self) -> dict[str, Any]:
        """The whole list as JSON-ready data."""
        entries = [entry.to_json() for entry in self.entries]
        return {"file": self.file, "today": self.today.isoformat(), "entries": entries}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Deviations:
        """Read what `to_json` wrote."""
        entries = (Deviation(**{**entry, "expires": date.fromisoformat(entry["expires"])}) for entry in data["entries"])
        return cls(tuple(entries), data["file"], date.fromisoformat(data["today"]))


def read(path: Path, name: str, today: date) -> Deviations:
    """Read a file of deviations.

    Args:
        path: where it lies.
        name: how the user named it, for messages.
        today: the day of the run.

    Raises:
        DeviationsProblem: it cannot be read, or an entry is not as it must be or can never come true.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeviationsProblem(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DeviationsProblem(f"{name} is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise DeviationsProblem(f"{name} is not TOML: {error}") from None
    tables = document.pop(_TABLE, [])
    if document:
        raise DeviationsProblem(f"{name}: {next(iter(document))!r} is not known; an entry begins with [[{_TABLE}]]")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise DeviationsProblem(f"{name}: an entry begins with [[{_TABLE}]]")
    entries = tuple(_entry(table, f"{name}: entry {number}") for number, table in enumerate(tables, 1))
    _demand_no_overlap(entries, name)
    return Deviations(entries, name, today)


def _entry(table: Mapping[str, Any], where: str) -> Deviation:
    table = {"engine": ALL, **table}
    if isinstance(table.get("clause"), str):
        where = f"{where} ({table['clause']})"
    known = [field.name for field in fields(Deviation)]
    for key in table:
        if key not in known:
            raise DeviationsProblem(f"{where}: {key!r} is not known; choose from {', '.join(known)}")
    for key in known:
        if key not in table:
            raise DeviationsProblem(f"{where}: {key} is missing")
        if problem := _expiry_problem(table[key]) if key == "expires" else _text_problem(table[key]):
            raise DeviationsProblem(f"{where}: {key} {problem}")
    entry = Deviation(**table)
    if problem := _why_never(entry):
        raise DeviationsProblem(f"{where}: {problem}")
    return entry


def _text_problem(value: object) -> str:
    if not isinstance(value, str):
        return f"is {value!r}, not text in quotes"
    return "" if value.strip() else "is empty"


def _expiry_problem(value: object) -> str:
    if isinstance(value, date) and not isinstance(value, datetime):
        return ""
    shown = value.isoformat() if isinstance(value, datetime) else repr(value)
    return f"is {shown}, not a date such as 2027-01-31, without quotes"


def _why_never(entry: Deviation) -> str:
    """Why no run can ever find what an entry says; empty if one can."""
    try:
        clause = contract.clause(entry.clause)
    except contract.UnknownClauseError as error:
        return str(error)
    if entry.engine not in (ALL, *EVERYWHERE):
        return f"no engine is called {entry.engine!r}; choose from {', '.join((ALL, *sorted(EVERYWHERE)))}"
    if clause.level is Level.REPORT:
        return "this clause has no right or wrong, so there is nothing to deviate from"
    if clause.untested:
        return f"this clause is never found broken: {clause.untested}"
    if entry.engine not in (ALL, *clause.engines):
        return f"this clause is not tested on {entry.engine}, only on {' and '.join(sorted(clause.engines))}"
    return ""


def _demand_no_overlap(entries: Iterable[Deviation], name: str) -> None:
    seen: list[Deviation] = []
    for entry in entries:
        for other in seen:
            if entry.clause == other.clause and (entry.engine == other.engine or ALL in (entry.engine, other.engine)):
                raise DeviationsProblem(f"{name}: {entry.clause} is listed twice for the same engine")
        seen.append(entry)
