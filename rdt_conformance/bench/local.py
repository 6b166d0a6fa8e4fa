"""Measuring on the local engine: a receiver's and a source's process, two of their own, without Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Literal

import torch

from rdt_conformance.bench import contents
from rdt_conformance.bench.ceilings import CEILINGS
from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.copies import LEAST_BYTES, copies
from rdt_conformance.bench.loop import Contender, Plan, Series, measure
from rdt_conformance.bench.process import ProcessGone, Remote
from rdt_conformance.bench.transports import TransportContender

Kind = Literal["transport", "ceiling"]


class Receiver:
    """In the receiver's process: it measures, and has the source's process do its part."""

    def __init__(self) -> None:
        torch.set_num_threads(1)  # as in Ray's workers
        self._source = Remote("source")

    def measure(self, load: Load, contenders: Mapping[str, tuple[Kind, str]], plan: Plan) -> dict[str, Series]:
        """Measure contenders on a load, in turn."""
        contents.forget()
        makers = {name: lambda what=what: self._contender(*what, load) for name, what in contenders.items()}
        series = measure(makers, plan)
        for name, (kind, spec) in contenders.items():
            if kind == "transport" and load.nbytes >= LEAST_BYTES and not series[name].problem:
                with contextlib.suppress(OSError):  # not every system counts
                    series[name].counters["copies"] = copies(spec, self._source, load)
        return series

    def _contender(self, kind: Kind, name: str, load: Load) -> Contender:
        if kind == "ceiling":
            return CEILINGS[name](self._source, load)
        return TransportContender(name, self._source, load)


class LocalPair:
    """The two processes, as seen from pytest's; they are started when they are needed, and anew if one is lost."""

    def __init__(self) -> None:
        self._receiver: tuple[Remote, int] | None = None

    def measure(self, load: Load, contenders: Mapping[str, tuple[Kind, str]], plan: Plan) -> dict[str, Series]:
        """See `loop.measure`.

        Args:
            load: what is carried.
            contenders: by the names that tables show: a kind, and a target or the name of a ceiling.
            plan: how much is measured.

        Raises:
            ProcessGone: the receiver ended or did not come back; the next call starts another one.
        """
        if self._receiver is None:
            process = Remote("receiver")
            self._receiver = process, process.make(Receiver)
        process, receiver = self._receiver
        try:
            return process.call(receiver, "measure", load, dict(contenders), plan, seconds=60 + 4 * plan.seconds)
        except ProcessGone:
            self.close()
            raise

    def close(self) -> None:
        """End both."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver[0].close()
