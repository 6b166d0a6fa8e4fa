"""What the GPUs of the machine can do, measured in the same run: copies by the driver, in this process.

And the loop of all contenders that fill memory of a GPU in one piece.
"""

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


class OnGpu:
    """A contender that fills memory of the GPU, as much as the load and in one piece.

    Args:
        source: the other process.
        load: what the transports carry.
    """

    def __init__(self, source: Remote, load: Load) -> None:
        self.counters: dict[str, float] = {}
        self._load = flat(load.nbytes, seed=load.seed, device=load.device)
        self._contents = Contents(self._load)
        self._new = not load.buffers
        self._buffer: torch.Tensor = tensors_of(self._load)[0]
        self._received: Any = None

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`. It is over when the GPU has done it, not when it has been told to."""
        self.before(turn)
        try:
            come_to_rest(self._buffer)
            cpu, began = _cpu(), _clock()
            self._received = torch.empty_like(self._buffer) if self._new else self._buffer
            self.fill(self._received)
            come_to_rest(self._received)
            ended, cpu = _clock(), _cpu() - cpu
        finally:
            self.after()
        return Sample(wait=ended - began, whole=ended - began, cpu=cpu)

    def before(self, turn: int) -> None:
        """Let the bytes that are to be moved be those of this turn, off the clock."""

    def fill(self, tensor: torch.Tensor) -> None:
        """Move all of them into a tensor, or tell the GPU to: what it does on that is waited for."""
        raise NotImplementedError

    def after(self) -> None:
        """End what `before` has begun, off the clock, whatever became of it."""

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        received, self._received = self._received, None
        return self._contents.wrong([received], turn)

    def close(self) -> None:
        """See `loop.Contender`."""


class DeviceCopy(OnGpu):
    """A copy from one memory of the GPU to another. The other process has no part in it."""

    origin: ClassVar[str] = ""
    """Where the bytes come from, as torch calls the device; empty: from where they go to."""

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._from: torch.Tensor = dataclasses.replace(self._load, device=self.origin or load.device).empty()[0]

    def before(self, turn: int) -> None:
        """See `OnGpu.before`."""
        self._contents.fill([self._from], turn)
        come_to_rest(self._from)

    def fill(self, tensor: torch.Tensor) -> None:
        """See `OnGpu.fill`."""
        tensor.copy_(self._from)
        come_to_rest(self._from)


class PeerCopy(DeviceCopy):
    """A copy from another GPU of the machine."""

    origin = "cuda:1"


class FromHost(DeviceCopy):
    """A copy from host memory as the system gives it, which is what a transport that knows no GPUs begins with."""

    origin = "cpu"


def come_to_rest(tensor: torch.Tensor) -> None:
    """Wait until the GPU that has it has done all that it was told to."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


GPU_CEILINGS: dict[str, type[DeviceCopy]] = {
    "device copy": DeviceCopy,
    "peer copy": PeerCopy,
    "copy from host": FromHost,
}
"""By the names that tables show."""
