"""Records transport calls in an actor's process and sends word of each to the driver's history."""

from __future__ import annotations

import itertools

from rdt_conformance.engines.cluster.channel import Began, Channel, Ended, ThreadEnded
from rdt_conformance.history import Event, Recorder


class _LastWords:
    """Sends what is added to it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def append(self, told: str) -> None:
        self._channel.send(ThreadEnded(told))


class SentHistory(Recorder):
    """See `rdt_conformance.history.Recorder`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self.last_words = _LastWords(channel)
        """See `History.last_words`."""

    def begin(self, process: str, lane: str, what: str, obj_id: str, at: float) -> Event:
        """See `Recorder.begin`."""
        event = Event(next(self._numbers), at, process, lane, what, obj_id)
        self._channel.send(Began(event.number, at, lane, what, obj_id))
        return event

    def end(self, event: Event, at: float, *, failed: bool) -> None:
        """See `Recorder.end`."""
        self._channel.send(Ended(event.number, at, event.outcome, failed))
