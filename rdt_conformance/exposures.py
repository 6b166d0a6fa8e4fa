"""What a run saw of a transport that others could get at, as its report tells it (clause R7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from rdt_conformance.results import CheckResult
from rdt_conformance.words import few

EXPOSURE = "exposure"
"""The fact of a check that holds a `rdt_conformance.observe.exposure.Exposed` for each thing, as a list."""
NETWORK = "the network"
"""Whoever can send packets to this machine."""
MACHINE = "every user of this machine"
GROUP = "the group"
USER = "this user"
LISTENING = "listening socket"


@dataclass(frozen=True)
class Exposure:
    """One thing that a process of the transport held, and whom it was open to."""

    engine: str
    kind: str
    what: str
    permissions: str
    reach: str

    @property
    def wide(self) -> bool:
        """Whether it is open beyond the user and, for a network address, beyond loopback."""
        return self.reach != USER and (self.kind, self.reach) != (LISTENING, MACHINE)

    def to_json(self) -> dict[str, str]:
        """The exposure as JSON-ready data."""
        return asdict(self)


def exposures(results: Iterable[CheckResult]) -> tuple[Exposure, ...] | None:
    """What the checks saw, engine by engine; None if none of them looked."""
    looked = [result for result in results if result.outcome != "error" and EXPOSURE in result.facts]
    if not looked:
        return None
    return tuple(Exposure(result.engine, *thing) for result in looked for thing in result.facts[EXPOSURE])


def in_a_line(found: Sequence[Exposure]) -> str:
    """What is open to others: ``listening socket 0.0.0.0 port 7000 (the network)``; empty if nothing is."""
    wide = [f"{thing.kind} {thing.what} ({thing.reach})" for thing in found if thing.wide]
    return few(list(dict.fromkeys(wide)), 3)
