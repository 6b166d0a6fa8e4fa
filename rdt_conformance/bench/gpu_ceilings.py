"""What the GPUs of the machine can do, measured in the same run: copies by the driver, in this process."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, ClassVar

import torch

from rdt_conformance.bench.contents import Contents, Load, flat, tensors_of
from rdt_conformance.bench.loop import Sample
from rdt_conformance.bench.process import Remote

_clock = time.perf_counter
_cpu = time.process_time


class DeviceCopy:
    """A contender: a copy from one memory of the GPU to another, as much as the load and in one piece.

    Args:
        source: the other process, which has no part in it.
        load: what the transports carry.
    """

    origin: ClassVar[str] = ""
    """Where the bytes come from, as torch calls the device; empty: from where they go to."""

    def __init__(self, source: Remote, load: Load) -> None:
        self.counters: dict[str, float] = {}
        self._load = flat(load.nbytes, seed=load.seed, device=load.device)
        self._contents = Contents(self._load)
        self._new = not load.buffers
        self._buffer: torch.Tensor = tensors_of(self._load)[0]
        self._from: torch.Tensor = dataclasses.replace(self._load, device=self.origin or load.device).empty()[0]
        self._received: Any = None

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`. It is over when the GPU has done it, not when it has been told to."""
        self._contents.fill([self._from], turn)
        _come_to_rest(self._from, self._buffer)
        cpu, began = _cpu(), _clock()
        self._received = torch.empty_like(self._buffer) if self._new else self._buffer
        self._received.copy_(self._from)
        _come_to_rest(self._from, self._received)
        ended = _clock()
        return Sample(wait=ended - began, whole=ended - began, cpu=_cpu() - cpu)

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        received, self._received = self._received, None
        return self._contents.wrong([received], turn)

    def close(self) -> None:
        """See `loop.Contender`."""


class PeerCopy(DeviceCopy):
    """A copy from another GPU of the machine."""

    origin = "cuda:1"


class FromHost(DeviceCopy):
    """A copy from host memory as the system gives it, which is what a transport that knows no GPUs begins with."""

    origin = "cpu"


def _come_to_rest(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        if tensor.is_cuda:
            torch.cuda.synchronize(tensor.device)


GPU_CEILINGS: dict[str, type[DeviceCopy]] = {
    "device copy": DeviceCopy,
    "peer copy": PeerCopy,
    "copy from host": FromHost,
}
"""By the names that tables show."""
