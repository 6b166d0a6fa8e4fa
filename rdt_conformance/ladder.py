"""The levels that a transport can reach."""

from __future__ import annotations

from dataclasses import dataclass

from rdt_conformance.contract_types import Area


@dataclass(frozen=True)
class Rung:
    """One step of the ladder of guarantees: what an author can say of a transport that holds its clauses."""

    number: int
    name: str
    areas: tuple[Area, ...]

    def __str__(self) -> str:
        return f'{self.number} of {len(LADDER)}, "{self.name}"'


LADDER = (
    Rung(1, "loads", (Area.STATIC,)),
    Rung(2, "delivers", (Area.METADATA, Area.INTEGRITY, Area.LIFECYCLE)),
    Rung(3, "keeps order", (Area.ORDERING, Area.FETCH, Area.BUFFERS, Area.CONCURRENCY)),
    Rung(4, "cleans up", (Area.GC,)),
    Rung(5, "aborts safely", (Area.ABORT,)),
    Rung(6, "survives faults", (Area.FAULTS,)),
)
