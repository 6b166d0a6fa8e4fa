"""The contract between Ray and a tensor transport, clause by clause, as data.

The register is the product's heart: checks, verdicts, reports and docs all take their words from here. The clauses
themselves are written in `rdt_conformance.clauses`, one module for each area.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

from rdt_conformance.clauses import (
    abort,
    buffers,
    concurrency,
    faults,
    fetch,
    gc,
    integrity,
    lifecycle,
    metadata,
    ordering,
    static,
)
from rdt_conformance.contract_types import EVERYWHERE, PROCESSES, REFERENCE, Applies, Area, Clause, Level

__all__ = [
    "CLAUSES",
    "EVERYWHERE",
    "PROCESSES",
    "REFERENCE",
    "Applies",
    "Area",
    "Clause",
    "Level",
    "UnknownClauseError",
    "by_area",
    "clause",
    "register",
]


class UnknownClauseError(KeyError):
    """No clause has this id. The message names those that come near."""

    def __str__(self) -> str:
        # KeyError would show the repr of its message.
        return str(self.args[0])


def register(clauses: Iterable[Clause]) -> dict[str, Clause]:
    """Index clauses by id, in the order of the areas, and within an area in the order given.

    Raises:
        ValueError: two clauses have the same id.
    """
    rank = {area: number for number, area in enumerate(Area)}
    by_id: dict[str, Clause] = {}
    for entry in sorted(clauses, key=lambda entry: rank[entry.area]):
        if entry.id in by_id:
            raise ValueError(f"two clauses have the id {entry.id!r}")
        by_id[entry.id] = entry
    return by_id


CLAUSES: dict[str, Clause] = register(
    itertools.chain(
        static.CLAUSES,
        metadata.CLAUSES,
        integrity.CLAUSES,
        lifecycle.CLAUSES,
        ordering.CLAUSES,
        fetch.CLAUSES,
        buffers.CLAUSES,
        concurrency.CLAUSES,
        gc.CLAUSES,
        abort.CLAUSES,
        faults.CLAUSES,
    )
)
"""Every clause by id, in the order of the areas."""


def clause(clause_id: str) -> Clause:
    """The clause with this id.

    Raises:
        UnknownClauseError: there is none; a `KeyError`.
    """
    try:
        return CLAUSES[clause_id]
    except KeyError:
        near = difflib.get_close_matches(clause_id.upper(), CLAUSES, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "--rdt-clauses lists them all"
        raise UnknownClauseError(f"no clause has the id {clause_id!r}; {hint}") from None


def as_meant(named: str) -> Clause:
    """The clause that a person names, in whatever case.

    Raises:
        UnknownClauseError: there is none; a `KeyError`.
    """
    ids = {clause_id.casefold(): clause_id for clause_id in CLAUSES}
    return clause(ids.get(named.casefold(), named))


def by_area() -> dict[Area, tuple[Clause, ...]]:
    """The clauses of each area, areas and clauses in order."""
    return {area: tuple(entry for entry in CLAUSES.values() if entry.area is area) for area in Area}
