"""Whole RDT as a contender: from the task that returns tensors to the task that has them, on any engine.

What is compared is all of it. What the transport takes of that is told by its calls in the history; the rest is what
RDT itself costs, and is shown as *control*.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.loop import Sample
from rdt_conformance.engines.base import Hung, Patience

if TYPE_CHECKING:
    from rdt_conformance.engines.rdt import Ref
    from rdt_conformance.engines.world import Held, World
    from rdt_conformance.payloads.base import PayloadKind

Way = Literal["passed to a task", "fetched by a get", "through the object store"]

_STAGE_OF = {
    "extract_tensor_transport_metadata": "extract",
    "fetch_multiple_tensors": "fetch",
    "wait_fetch_complete": "wait",
    "recv_multiple_tensors": "wait",
}
"""The calls that a receiver waits for. A two-sided send takes place at the same time as the receiving."""


class RdtContender:
    """An object that a task of one actor returns and another actor gets, one way or another.

    Args:
        world: where two actors are; all contenders of a cell share them.
        kind: makes what is sent.
        load: how much, in how many tensors.
        way: how it gets there.
        patience: for how long.
    """

    def __init__(self, world: World, kind: PayloadKind, load: Load, way: Way, patience: Patience) -> None:
        self.counters: dict[str, float] = {}
        self._world = world
        self._source, self._destination = world.actors(2)
        self._kind = kind
        self._load = load
        self._way = way
        self._seconds = patience.for_bytes(load.nbytes)
        self._kept: tuple[Ref, Held, Held] | None = None

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`.

        Raises:
            TimeoutError: something does not come back.
        """
        payload = self._kind.simple(self._load.nbytes, self._load.count, self._load.seed + turn)
        try:
            made = time.perf_counter()
            tensors = self._source.build(payload, self._load.device)
            self._world.come_to_rest()
            self._world.history.clear()
            began = time.perf_counter()
            ref = self._source.produce(tensors)
            if self._way == "passed to a task":
                pending = self._destination.consume(ref)
            else:
                pending = self._destination.get(ref, through_store=self._way == "through the object store")
            arrived = pending.result(self._seconds)
            ended = time.perf_counter()
            self._world.come_to_rest()  # word of what happened in another process comes late
        except Hung as hung:
            raise TimeoutError(str(hung)) from None
        self._kept = ref, tensors, arrived
        stages: dict[str, float] = dict.fromkeys(("extract", "fetch", "wait"), 0.0)
        for step in self._world.history.steps():
            if (stage := _STAGE_OF.get(step.what.partition("(")[0])) and step.ended is not None:
                stages[stage] += step.ended - step.at
        control = max(0.0, ended - began - sum(stages.values()))
        return Sample(**stages, create=began - made, control=control, whole=ended - made, end_to_end=ended - began)

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        if self._kept is None:
            return ""
        (ref, tensors, arrived), self._kept = self._kept, None
        payload = self._kind.simple(self._load.nbytes, self._load.count, self._load.seed + turn)
        differences = arrived.differences(payload)
        for held in (arrived, tensors):
            held.drop()
        ref.drop()
        self._world.come_to_rest()
        return "; ".join(differences[:1])

    def close(self) -> None:
        """See `loop.Contender`."""
