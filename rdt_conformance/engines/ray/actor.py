"""What runs inside the process of an actor on the ray engine."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from rdt_conformance import pickling
from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.cluster.actor import ActorProcess
from rdt_conformance.engines.cluster.channel import dump_outcome
from rdt_conformance.engines.ray.errors import translated
from rdt_conformance.engines.ray.recording import Place, record_in
from rdt_conformance.engines.ray.registry import RayRegistry
from rdt_conformance.engines.ray.worker import RayWorker
from rdt_conformance.engines.reference.context import inside
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.history import Recorder


class RayActorProcess(ActorProcess):
    """Tasks whose arguments and results Ray's RDT carries; everything else as in `ActorProcess`."""

    def make_worker(self, name: str, history: Recorder, settings: Settings) -> Worker:
        """A worker whose transport is the one that Ray uses in this process."""
        self._place = Place(name, history)
        record_in(self._place)
        registry = RayRegistry(self._registration)
        registry.show_what_is_known()
        return RayWorker(name, self._outside, registry, history, settings)

    def know_lanes(self, lanes: dict[int, Lane]) -> None:
        """Learn which thread is which lane, so that calls which Ray makes there are recorded as such."""
        self._place.lanes = lanes

    def produce(self, message: bytes) -> Any:
        """A task whose result stays here as an RDT object."""
        with self._at_work(Lane.MAIN), inside(self.worker, Lane.MAIN):
            function, args = pickling.loads(message)
            return function(self.worker, *args)

    def consume(self, *values: Any, **named: Any) -> tuple[int, bytes]:
        """A task that takes objects as arguments and keeps them."""
        return self._channel.sent, dump_outcome(self.worker.keep([*values, *named.values()]))

    def run_with(self, message: bytes, refs: Sequence[Any]) -> tuple[int, bytes, list[Any]]:
        """Run a message that takes references, or returns one; Ray has to see them, so they come and go in the open."""
        returned = []
        with self._at_work(Lane.MAIN), inside(self.worker, Lane.MAIN):
            try:
                function, args, passes_refs = pickling.loads(message)
                result = function(self.worker, *args, *([refs] if passes_refs else []))
                if not passes_refs:
                    returned, result = [result], None
                outcome = dump_outcome(result)
            except BaseException as error:
                traceback.clear_frames(error.__traceback__)
                outcome = dump_outcome(error=translated(error))  # some of Ray's own cannot be unpickled
        return self._channel.sent, outcome, returned
