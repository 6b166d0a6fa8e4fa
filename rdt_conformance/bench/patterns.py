"""More than one receiver, or more than one thing at a time. All are for one-sided transports, as Ray's get is."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from rdt_conformance.bench.contents import Load, flat
from rdt_conformance.bench.loop import Sample
from rdt_conformance.bench.process import PATIENCE_SECONDS, Remote
from rdt_conformance.bench.transports import Receiving, Source, TransportContender

BULK_BYTES = 32 << 20
"""What is carried while something small is measured."""


class FanOut(TransportContender):
    """One object to this process and to others at once; it is over when the last one has it."""

    def __init__(self, spec: str, source: Remote, load: Load, others: list[Remote], *, held_against: bool) -> None:
        super().__init__(spec, source, load, held_against=held_against)
        self.waits_for_others = True
        self._others = [(other, other.make(Receiving, spec, held_against, load)) for other in others]

    def begin_others(self, others: ExitStack, ids: list[str], described: list[bytes]) -> None:
        """See `TransportContender.begin_others`."""
        for other, receiving in self._others:
            other.begin(receiving, "fetch", ids, described)
            others.callback(other.end)

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        elsewhere = [other.call(receiving, "wrong", turn) for other, receiving in self._others]
        return super().wrong(turn) or next(filter(None, elsewhere), "")

    def close(self) -> None:
        """See `loop.Contender`."""
        for other, receiving in self._others:
            other.forget(receiving)
        super().close()


class BothWays(TransportContender):
    """An object in each direction at once; it is over when both have arrived."""

    def __init__(self, spec: str, source: Remote, load: Load, *, held_against: bool) -> None:
        super().__init__(spec, source, load, held_against=held_against)
        self.waits_for_others = True
        self._back = Source(spec, held_against, load)
        self._there = source.make(Receiving, spec, held_against, load)

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`. What goes the other way is described before, and freed afterwards, off the clock."""
        self._ids_back = [f"{self._prefix}{turn:08x}{'f' * 8}"]
        self._described_back, _, _ = self._back.describe(self._ids_back, turn)
        try:
            return super().cycle(turn)
        finally:
            self._back.collect(self._ids_back)

    def begin_others(self, others: ExitStack, ids: list[str], described: list[bytes]) -> None:
        """See `TransportContender.begin_others`."""
        self._remote.begin(self._there, "fetch", self._ids_back, self._described_back)
        others.callback(self._remote.end)

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        elsewhere = self._remote.call(self._there, "wrong", turn)
        return super().wrong(turn) or elsewhere

    def close(self) -> None:
        """See `loop.Contender`."""
        self._remote.forget(self._there)
        super().close()


class UnderBulk(TransportContender):
    """Something small, while another thread of this process fetches something large over the same transport."""

    def __init__(self, spec: str, source: Remote, load: Load, *, held_against: bool) -> None:
        super().__init__(spec, source, load, held_against=held_against)
        bulk = flat(BULK_BYTES, seed=load.seed, data_type=load.data_type, device=load.device)
        self._bulk = Receiving(spec, held_against, bulk)
        self._bulk.transport = self._receiving.transport
        self._bulk_source = source.make(Source, spec, held_against, bulk)
        self._bulk_ids = [f"{self._prefix}{'f' * 16}"]
        self._bulk_described, _, _ = source.call(self._bulk_source, "describe", self._bulk_ids, 1)
        self._thread: threading.Thread | None = None
        self._problem = ""

    def begin_others(self, others: ExitStack, ids: list[str], described: list[bytes]) -> None:
        """See `TransportContender.begin_others`. It ends off the clock, in `wrong`."""
        begun = threading.Event()
        self._thread = threading.Thread(target=self._carry, args=(begun,), name="bulk", daemon=True)
        self._thread.start()
        begun.wait()

    def _carry(self, begun: threading.Event) -> None:
        begun.set()
        try:
            self._bulk.fetch(self._bulk_ids, self._bulk_described)
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)
        of_bulk = self._problem or self._bulk.wrong(1)
        return super().wrong(turn) or (f"the large object: {of_bulk}" if of_bulk else "")

    def close(self) -> None:
        """See `loop.Contender`."""
        self._remote.call(self._bulk_source, "collect", self._bulk_ids)
        self._remote.forget(self._bulk_source)
        super().close()
