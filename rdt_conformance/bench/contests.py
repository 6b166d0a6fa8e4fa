"""Who is measured with whom: the transport under test, and what it is measured beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rdt_conformance import allocator
from rdt_conformance.bench import gate
from rdt_conformance.bench.ceilings import ceilings_for
from rdt_conformance.bench.cells import Cell, why_not, why_not_apart
from rdt_conformance.bench.contents import MEASURED, MEASURED_IN_WORDS, Load
from rdt_conformance.bench.copies import LEAST_BYTES
from rdt_conformance.bench.local import Kind, LocalPair
from rdt_conformance.bench.loop import Contender, Plan, Series, measure
from rdt_conformance.bench.process import ProcessGone, RemoteError
from rdt_conformance.bench.raw_peers import RAW_PEERS, why_not_raw
from rdt_conformance.bench.rdt import RdtContender, Way
from rdt_conformance.bench.results import CellResult, Finding, Role, Row, summarize
from rdt_conformance.bench.statistics import Verdict
from rdt_conformance.target import type_name

if TYPE_CHECKING:
    from rdt_conformance.checks.bench import Bench
    from rdt_conformance.target import Target

AGAIN = "again"
"""The name of a second instance of the contender before it."""
_ATTEMPTS = 4
"""A comparison that says nothing is measured on, so many times as long at most."""


@dataclass(frozen=True)
class _Entrant:
    """A contender in a contest: what it is there for, how to build it, and in which processes."""

    name: str
    role: Role
    kind: Kind
    what: str
    pair: LocalPair


class Contests:
    """Measures cells on one engine.

    Args:
        target: the transport under test.
        peers: targets that are measured beside it.
        against: a target that it is held against, if any.
        gated: what is found will be compared with an earlier run.
        seconds: what each contest may take.
        seed: of everything that is chosen at random.
        bench: gives the transport on an engine, for whole RDT.
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
        bench: Callable[[str], Bench],
    ) -> None:
        self._target = target
        self._peers = peers
        self._against = against
        self._gated = gated
        self.seconds = seconds
        """How long each measurement lasts; may change from one cell to the next."""
        self.measured = 0.0
        """Seconds that all measurements together were given."""
        self._seed = seed
        self._bench = bench
        self._be(apart=False)

    def _be(self, *, apart: bool) -> None:
        """Have processes on one GPU, or on two. They are started when they are needed."""
        self._apart = apart
        self._own = LocalPair(apart=apart)
        # Some transports have threads that never rest: peers are in other processes, and not alive meanwhile.
        self._beside = LocalPair(apart=apart)

    def measure(self, benchmark: str, cell: Cell) -> CellResult:
        """Measure a cell; what goes wrong is in the result."""
        target = self._target
        load = cell.load.adapted(type_name(target.data_type.value), target.devices.value[0], self._seed % 2**31)
        result = CellResult(benchmark, cell.name, cell.engine or "local", load.nbytes, load.count, load.buffers)
        result.objects, result.apart = cell.objects, cell.apart
        if cell.apart != self._apart:
            self.close()  # what is elsewhere would take memory, and perhaps time
            self._be(apart=cell.apart)
        result.why_not = self._why_not(cell, load)
        if result.why_not:
            return result
        if cell.pattern == "whole rdt":
            result.rows += self._whole_rdt(cell, load)
            return result
        if self._against is not None:
            self._hold_against(result, cell, load)
        else:
            result.rows += self._contest(self._with_limits(cell), cell, load)
        if self._peers:
            result.rows += self._peers_beside(cell, load)
        return result

    def _why_not(self, cell: Cell, load: Load) -> str:
        """Why this transport, or this machine, cannot do a cell; empty if it can."""
        if cell.pattern not in ("in turn", "whole rdt") and not self._target.one_sided.value:
            return "it takes a one-sided transport, as Ray's get does"
        if type_name(self._target.data_type.value) not in MEASURED:
            return f"only {MEASURED_IN_WORDS} are measured"
        if load.buffers and not (self._target.one_sided.value and self._target.takes_buffers):
            return "Ray lets no target buffers come to this transport"
        if cell.apart and (reason := why_not_apart(load.device)):
            return reason
        here = load.device == "cuda" and cell.pattern != "whole rdt"  # in which other processes take part
        return why_not(load, self._free_on_gpu() if here else None)

    def _free_on_gpu(self) -> int | None:
        """Bytes; None if it cannot be told, of which the contest then says why.

        The receiver looks, since whoever does takes half a gigabyte of the GPU for itself.
        """
        with suppress(ProcessGone, RemoteError):
            return self._own.ask("free_on_gpu")
        return None

    def _whole_rdt(self, cell: Cell, load: Load) -> list[Row]:
        """The transport in RDT of an engine, one way and another, and what RDT does without a transport."""
        ways: dict[Way, Role] = {"passed to a task": "transport"}
        if self._target.one_sided.value:
            ways |= {"fetched by a get": "peer", "through the object store": "peer"}
        allocator.keep_freed()  # leak checks may have been in this process before
        bench = self._bench(cell.engine)
        world = bench.new_world()
        try:
            makers = {way: partial(RdtContender, world, bench.kind, load, way, bench.patience) for way in ways}
            series = self._measure(makers, Plan(self.seconds, epochs=1, soak=0, seed=self._seed))
        finally:
            world.close()
        own = series["passed to a task"]
        return [summarize(way, role, series[way], own, load.nbytes, self._seed) for way, role in ways.items()]

    def _hold_against(self, result: CellResult, cell: Cell, load: Load) -> None:
        """Measure, and if there is a difference, measure anew in other processes: what is found then counts.

        Where the system lets the threads of one instance run may make it faster than another for as long as it lives.
        That can hide a difference as well as make one, so what looks like one, and cannot be told, is tried anew first.
        """
        said = self._measure_until_told(result, cell, load)
        if said and said.verdict is Verdict.INCONCLUSIVE and said.changes[0].seems_different:
            self._own.close()
            said = self._measure_until_told(result, cell, load)
        if said and said.verdict in (Verdict.WORSE, Verdict.BETTER):
            self._own.close()
            self._measure_until_told(result, cell, load)

    def _measure_until_told(self, result: CellResult, cell: Cell, load: Load) -> Finding | None:
        """Measure until there is something to say of the time, or it has been tried for long enough."""
        before: dict[str, Series] = {}
        said = None
        for attempt in range(_ATTEMPTS):
            result.rows = self._contest(self._with_baseline(self._against or ""), cell, load, before, attempt)
            said = next(iter(gate.against(result, self._seed)), None)
            if said is None or said.verdict is not Verdict.INCONCLUSIVE:
                break
        return said

    def _with_limits(self, cell: Cell) -> list[_Entrant]:
        """The transport with the machine's limits."""
        spec = self._target.spec
        again = [_Entrant(f"{spec} {AGAIN}", "again", "transport", spec, self._own)] if self._gated else []
        names = ceilings_for(self._target.devices.value[0]) if cell.pattern == "in turn" else ()
        limits = [_Entrant(name, "ceiling", "ceiling", name, self._own) for name in names]
        return [_Entrant(spec, "transport", "transport", spec, self._own), *again, *limits]

    def _with_baseline(self, against: str) -> list[_Entrant]:
        # All in the same processes: where the system lets a process run can make it twice as fast as another.
        return [
            _Entrant(self._target.spec, "transport", "transport", self._target.spec, self._own),
            _Entrant(f"against {against}", "baseline", "held against", against, self._own),
            _Entrant(f"against {against} {AGAIN}", "again", "held against", against, self._own),
        ]

    def _peers_beside(self, cell: Cell, load: Load) -> list[Row]:
        """The peers, each with its numbers or with the reason why it has none. Raw ones carry in turn only."""
        entrants = [_Entrant(self._target.spec, "transport", "transport", self._target.spec, self._beside)]
        reasons: list[Row] = []
        for peer in self._peers:
            name = f"peer {peer}"
            if peer not in RAW_PEERS:
                entrants.append(_Entrant(name, "peer", "transport", peer, self._beside))
            elif cell.pattern == "in turn":
                if reason := why_not_raw(peer, load.device, apart=cell.apart):
                    reasons.append(Row(name, "peer", problem=reason))
                else:
                    entrants.append(_Entrant(name, "peer", "raw library", peer, self._beside))
        measured = self._contest(entrants, cell, load)[1:] if len(entrants) > 1 else []
        return [*measured, *reasons]

    def _contest(
        self,
        entrants: Sequence[_Entrant],
        cell: Cell,
        load: Load,
        before: dict[str, Series] | None = None,
        attempt: int = 0,
    ) -> list[Row]:
        """Let them take turns; what was measured `before` counts too, and what is measured now is added to it."""
        makers = {
            each.name: partial(each.pair.contender, each.kind, each.what, load, cell.objects, cell.pattern)
            for each in entrants
        }
        series = self._measure(makers, Plan(self.seconds, epochs=cell.epochs, seed=self._seed + attempt))
        if before is not None:
            for name, each in series.items():
                before[name] = before[name].followed_by(each) if name in before else each
            series = before
        for each in entrants:
            if each.role in ("transport", "baseline") and load.nbytes >= LEAST_BYTES and not series[each.name].problem:
                series[each.name].counters["copies"] = each.pair.copies(each.kind, each.what, load)
        own = series[entrants[0].name]
        return [summarize(each.name, each.role, series[each.name], own, load.nbytes, self._seed) for each in entrants]

    def _measure(self, makers: Mapping[str, Callable[[], Contender]], plan: Plan) -> dict[str, Series]:
        self.measured += plan.seconds
        return measure(makers, plan)

    def close(self) -> None:
        """End all processes."""
        for pair in (self._own, self._beside):
            pair.close()
