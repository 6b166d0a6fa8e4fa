"""What a benchmark measures at a time, and whether this machine can."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from rdt_conformance.bench.contents import Load, flat
from rdt_conformance.bench.local import Pattern
from rdt_conformance.bench.results import BETWEEN_GPUS
from rdt_conformance.words import in_bytes

_ROOM = 10
"""So many times its payload a cell may take of the machine's memory, with all contenders and what they compare with."""


@dataclass(frozen=True)
class Cell:
    """One point of a sweep, or one scenario.

    Args:
        name: short, unique within its benchmark; what tables show.
        load: what is carried, but for seed, data type and device, which are the run's.
        objects: the load is spread over so many objects, which are in flight together.
        pattern: how they are carried.
        engine: for whole RDT, what carries it; every engine of the run if empty.
        epochs: how often the contenders are built: more where the first use is what is looked at.
        device: the one type of device whose memory it is for; any if empty.
        apart: source and receiver are on different GPUs, which its name then says.
    """

    name: str
    load: Load
    objects: int = 1
    pattern: Pattern = "in turn"
    engine: str = ""
    epochs: int = 4
    device: str = ""
    apart: bool = False

    def __post_init__(self) -> None:
        if self.apart and BETWEEN_GPUS not in self.name:
            object.__setattr__(self, "name", f"{self.name}{BETWEEN_GPUS}")

    @property
    def id(self) -> str:
        """Its name for pytest: ``16MiB-1000``, ``1MiB-ray``, ``64MiB-apart``."""
        short = self.name.replace(BETWEEN_GPUS, "").replace(" in ", "-").replace(" on ", "-").removesuffix(" tensors")
        return short.replace(" ", "") + ("-apart" if self.apart else "")

    def on(self, engine: str) -> Cell:
        """The same cell on one engine."""
        return dataclasses.replace(self, name=f"{self.name} on {engine}", engine=engine)


@dataclass(frozen=True)
class BenchmarkSpec:
    """The cells of one benchmark.

    Args:
        full: those of ``--benchmark-only``.
        quick: those that follow the checks.
    """

    full: tuple[Cell, ...]
    quick: tuple[Cell, ...]


def benchmark(full: Sequence[Cell], quick: Sequence[Cell] = ()) -> Callable[[Callable[..., None]], Any]:
    """Make a benchmark of a test function, which is called with an arena and with each of the cells."""

    def decorate(function: Callable[..., None]) -> Any:
        function.__rdt_benchmark__ = BenchmarkSpec(tuple(full), tuple(quick))  # type: ignore[attr-defined]
        return function

    return decorate


def tensors(nbytes: int, count: int = 1, **how: Any) -> Cell:
    """A cell with tensors of bytes."""
    among = f" in {count} tensors" if count > 1 else ""
    return Cell(f"{in_bytes(nbytes)}{among}", flat(nbytes, count), **how)


def why_not(load: Load, free_on_gpu: int | None = None) -> str:
    """Why this machine cannot do a cell; empty if it can.

    Args:
        load: what is carried.
        free_on_gpu: bytes that are free on the GPU, if it is to be there.
    """
    room = {"memory": psutil.virtual_memory().available}
    if free_on_gpu is not None:
        room["the GPU's memory"] = free_on_gpu
    for what, available in room.items():
        if _ROOM * load.nbytes > available:
            needed = in_bytes(_ROOM * load.nbytes)
            return f"it may take {needed} of {what}, and {in_bytes(available)} are available"
    return ""


def why_not_apart(device: str) -> str:
    """Why nothing can be carried between GPUs here, by a transport of a device's memory; empty if it can."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        return f"it needs two GPUs, and there {'is' if gpus == 1 else 'are'} {gpus}"
    return "" if device == "cuda" else f"it is for GPU memory, and the transport is measured with that of {device}"
