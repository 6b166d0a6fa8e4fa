"""Records transport calls in an actor's process and sends word of each to the driver's history."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rdt_conformance.engines.cluster.channel import Began, Channel, Ended
from rdt_conformance.history import Event, describe_error


class SentHistory:
    """See `rdt_conformance.history.Recorder`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)

    @contextmanager
    def record(self, process: str, lane: str, what: str, obj_id: str = "") -> Iterator[Event]:
        """Record one call. The body may set `outcome`; an exception sets it to ``raised …``."""
        event = Event(next(self._numbers), time.perf_counter(), process, lane, what, obj_id)
        self._channel.send(Began(event.number, event.began, lane, what, obj_id))
        failed = True
        try:
            yield event
            failed = False
        except BaseException as error:
            event.outcome = f"raised {describe_error(error)}"
            raise
        finally:
            self._channel.send(Ended(event.number, time.perf_counter(), event.outcome, failed))
