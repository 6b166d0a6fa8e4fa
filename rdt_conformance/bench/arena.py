"""What a benchmark of a suite works with: the transport under test, and what it is measured beside."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rdt_conformance.bench.ceilings import CEILINGS
from rdt_conformance.bench.cells import Cell, why_not
from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.local import Kind, LocalPair
from rdt_conformance.bench.loop import Plan, Series
from rdt_conformance.bench.process import ProcessGone
from rdt_conformance.bench.results import CellResult, Role, Row, summarize

if TYPE_CHECKING:
    from rdt_conformance.target import Target

AGAIN = "again"
"""The name of a second instance of the contender before it."""


@dataclass(frozen=True)
class Contest:
    """Contenders that are measured in the same turns: what each is there for, and how to build it."""

    contenders: Mapping[str, tuple[Role, tuple[Kind, str]]]
    plan: Plan


class Arena:
    """Measures cells on one engine.

    Args:
        target: the transport under test.
        peers: targets that are measured beside it.
        against: a target that it is held against, if any.
        gated: what is found will be compared with an earlier run.
        seconds: what each contest may take.
        seed: of everything that is chosen at random.
    """

    def __init__(
        self,
        target: Target,
        peers: Sequence[str],
        against: str | None,
        *,
        gated: bool,
        seconds: float,
        seed: int,
    ) -> None:
        self._target = target
        self._peers = peers
        self._against = against
        self._gated = gated
        self._seconds = seconds
        self._seed = seed
        # Some transports have threads that never rest: peers are in processes of their own, and not alive meanwhile.
        self._own_pair, self._peer_pair = LocalPair(), LocalPair()

    def measure(self, benchmark: str, cell: Cell) -> CellResult:
        """Measure a cell; what goes wrong is in the result."""
        target = self._target
        data_type = f"{target.data_type.value.__module__}.{target.data_type.value.__qualname__}"
        load = dataclasses.replace(
            cell.load, seed=self._seed % 2**31, data_type=data_type, device=target.devices.value[0]
        )
        result = CellResult(benchmark, cell.name, "local", load.nbytes, load.count, load.buffers, why_not=why_not(load))
        if not result.why_not:
            result.rows += self._contest(self._own_pair, self._own(cell), load)
            if self._peers:
                result.rows += self._contest(self._peer_pair, self._with_peers(cell), load)[1:]
        return result

    def _own(self, cell: Cell) -> Contest:
        """The transport with the machine's limits, or with the one that it is held against."""
        own = self._target.spec
        contenders: dict[str, tuple[Role, tuple[Kind, str]]] = {own: ("transport", ("transport", own))}
        if self._against is not None:
            contenders[f"against {self._against}"] = ("baseline", ("transport", self._against))
            contenders[f"{self._against} {AGAIN}"] = ("again", ("transport", self._against))
        elif self._gated:
            contenders[f"{own} {AGAIN}"] = ("again", ("transport", own))
        contenders |= {name: ("ceiling", ("ceiling", name)) for name in CEILINGS}
        return Contest(contenders, self._plan(cell))

    def _with_peers(self, cell: Cell) -> Contest:
        own = self._target.spec
        contenders: dict[str, tuple[Role, tuple[Kind, str]]] = {own: ("transport", ("transport", own))}
        contenders |= {f"peer {peer}": ("peer", ("transport", peer)) for peer in self._peers}
        return Contest(contenders, self._plan(cell))

    def _plan(self, cell: Cell) -> Plan:
        return Plan(self._seconds, epochs=cell.epochs, seed=self._seed)

    def _contest(self, pair: LocalPair, contest: Contest, load: Load) -> list[Row]:
        makers = {name: how for name, (_, how) in contest.contenders.items()}
        try:
            series = pair.measure(load, makers, contest.plan)
        except ProcessGone as gone:
            series = {name: Series(problem=str(gone)) for name in makers}
        own = next(iter(series.values()))
        return [
            summarize(name, contest.contenders[name][0], each, own, load.nbytes, self._seed)
            for name, each in series.items()
        ]

    def close(self) -> None:
        """End all processes."""
        self._own_pair.close()
        self._peer_pair.close()
