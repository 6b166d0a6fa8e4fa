"""Contenders on the local engine: a receiver's and a source's process, two of their own, without Ray."""

from __future__ import annotations

import contextlib
import gc
from typing import Any, Literal

import torch

from rdt_conformance.bench import contents, copies
from rdt_conformance.bench.ceilings import ceiling
from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.loop import Contender, Sample
from rdt_conformance.bench.patterns import BothWays, FanOut, UnderBulk
from rdt_conformance.bench.process import ProcessGone, Remote
from rdt_conformance.bench.raw_peers import raw_peer
from rdt_conformance.bench.transports import TransportContender

Kind = Literal["transport", "held against", "ceiling", "raw library"]
Pattern = Literal["in turn", "to several", "both ways", "under bulk", "whole rdt"]
"""How objects are carried; ceilings and raw libraries know but the first one, and the last one is for engines."""
RECEIVERS = 2
"""Of one object, where there are several."""
_SECOND_GPU = 1


class Receiver:
    """In the receiver's process: it has the contenders, and tells the source's process to do its part.

    Args:
        apart: the source has another GPU, and sees no other one. Each calls its own ``cuda:0``, as Ray's actors do.
    """

    def __init__(self, apart: bool) -> None:
        torch.set_num_threads(1)  # as in Ray's workers
        self._source = Remote("source", gpu=_SECOND_GPU if apart else None)
        self._others: list[Remote] = []
        self._contenders: dict[int, Contender] = {}
        self._built = 0

    def build(self, kind: Kind, name: str, load: Load, objects: int, pattern: Pattern) -> int:
        """Build a contender; its number."""
        self._built += 1
        self._contenders[self._built] = self._contender(kind, name, load, objects, pattern)
        return self._built

    def _contender(self, kind: Kind, name: str, load: Load, objects: int, pattern: Pattern) -> Contender:
        if kind == "ceiling":
            return ceiling(name, self._source, load)
        if kind == "raw library":
            return raw_peer(name, self._source, load)
        held_against = kind == "held against"
        match pattern:
            case "in turn":
                return TransportContender(name, self._source, load, objects=objects, held_against=held_against)
            case "to several":
                while len(self._others) < RECEIVERS - 1:
                    self._others.append(Remote("other receiver"))
                return FanOut(name, self._source, load, self._others, held_against=held_against)
            case "both ways":
                return BothWays(name, self._source, load, held_against=held_against)
            case "under bulk":
                return UnderBulk(name, self._source, load, held_against=held_against)
            case "whole rdt":
                raise ValueError(f"{pattern} is for engines, not for two processes")

    def free_on_gpu(self) -> int:
        """Bytes of the receiver's GPU that nobody uses."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    def turn(self, number: int, turn: int) -> tuple[Sample, str, dict[str, float]]:
        """One cycle, what is wrong with what came, and the counters."""
        contender = self._contenders[number]
        return contender.cycle(turn), contender.wrong(turn), contender.counters

    def close(self, number: int) -> None:
        """Close a contender, and forget what was sent if it was the last one."""
        self._contenders.pop(number).close()
        gc.collect()
        if not self._contenders:
            contents.forget()

    def copies(self, kind: Kind, spec: str, load: Load) -> float:
        """See `copies.copies`."""
        return copies.copies(spec, self._source, load, held_against=kind == "held against")


class LocalPair:
    """The two processes, as seen from pytest's; they are started when they are needed, and anew if one is lost.

    Args:
        apart: they are on different GPUs.
    """

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self._receiver: tuple[Remote, int] | None = None
        self.lost = 0
        """How often one was lost. Contenders that were in it are lost too."""

    def contender(self, kind: Kind, name: str, load: Load, objects: int = 1, pattern: Pattern = "in turn") -> Contender:
        """Build a contender there: a transport by its target, or a ceiling by its name."""
        return _RemoteContender(self, kind, name, load, objects, pattern)

    def copies(self, kind: Kind, spec: str, load: Load) -> float:
        """See `copies.copies`."""
        return self.ask("copies", kind, spec, load)

    def ask(self, method: str, *args: object) -> Any:
        """What a method of the receiver returns.

        Raises:
            ProcessGone: a process ended or did not answer; the next call starts others.
            RemoteError: what the method raised.
        """
        if self._receiver is None:
            process = Remote("receiver")
            self._receiver = process, process.make(Receiver, self._apart)
        process, receiver = self._receiver
        try:
            return process.call(receiver, method, *args)
        except ProcessGone:
            self.lost += 1
            self.close()
            raise

    def close(self) -> None:
        """End both."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver[0].close()


class _RemoteContender:
    """A contender in the receiver's process. Its times are taken there; what it takes to ask for them is outside."""

    def __init__(self, pair: LocalPair, kind: Kind, name: str, load: Load, objects: int, pattern: Pattern) -> None:
        self._pair = pair
        self._number = pair.ask("build", kind, name, load, objects, pattern)
        self._lost = pair.lost
        self._wrong = ""
        self.counters: dict[str, float] = {}

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`."""
        if self._lost != self._pair.lost:
            raise ProcessGone("another contender brought down the process")
        sample, self._wrong, self.counters = self._pair.ask("turn", self._number, turn)
        return sample

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        return self._wrong

    def close(self) -> None:
        """See `loop.Contender`."""
        with contextlib.suppress(ProcessGone):
            if self._lost == self._pair.lost:
                self._pair.ask("close", self._number)
