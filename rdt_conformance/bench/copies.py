"""How many copies of a payload a transfer holds at its peak: a count, which does not depend on the machine's load."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from rdt_conformance import allocator
from rdt_conformance.bench.contents import Load, flat
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.transports import TransportContender

LEAST_BYTES = 16 << 20
"""Less than this would be lost among what a process takes and gives back all the time, and in huge pages."""
_TIMES = 3
"""The least of several counts: whatever else happens can only add to one."""


class Peak:
    """The largest memory of a process since a moment, above what it had then; with that of its GPU if it uses one."""

    def __init__(self) -> None:
        self._before = self._on_gpu = 0

    def begin(self) -> None:
        """Count from now on. What was freed is given back first: it would be filled again without being counted."""
        allocator.trim()
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._kibibytes("VmRSS")
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
            self._on_gpu = torch.cuda.memory_allocated()

    def bytes(self) -> int:
        """The largest memory since, in bytes."""
        on_gpu = torch.cuda.max_memory_allocated() - self._on_gpu if torch.cuda.is_initialized() else 0
        return (self._kibibytes("VmHWM") - self._before) * 1024 + on_gpu

    def _kibibytes(self, name: str) -> int:
        found = re.search(rf"^{name}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        assert found is not None, name
        return int(found.group(1))


def copies(spec: str, source: Remote, load: Load, *, held_against: bool = False) -> float:
    """Peak memory of both processes in the first transfer of a new transport, in payloads.

    The tensors of the source and target buffers are there before, and do not count. Shared memory counts in each
    process that has it mapped. What a transport keeps for later counts, too.

    Raises:
        OSError: this system does not tell.
    """
    small = flat(64, seed=load.seed, data_type=load.data_type, device=load.device)
    first = TransportContender(spec, source, small, held_against=held_against)
    first.cycle(0)  # loads libraries and starts threads
    first.close()
    return min(
        _once(TransportContender(spec, source, load, held_against=held_against), source, load) for _ in range(_TIMES)
    )


def _once(contender: TransportContender, source: Remote, load: Load) -> float:
    here, there = Peak(), source.make(Peak)
    try:
        source.call(there, "begin")
        here.begin()
        contender.cycle(1)
        return (here.bytes() + source.call(there, "bytes")) / load.nbytes
    finally:
        source.forget(there)
        contender.close()
