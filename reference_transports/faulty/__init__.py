"""Transports that are wrong on purpose, each in one way, to prove that the suite notices.

Each is a few lines on top of a good one, named for its fault and bound by `breaks` to the clause it breaks.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable
from typing import TypeVar

from ray.experimental import TensorTransportManager

T = TypeVar("T", bound=type[TensorTransportManager])

# Not PYTEST_XDIST_WORKER itself, which those that a worker starts are not always told.
FILES = f"rdt_faulty_{os.environ.setdefault('RDT_FAULTY_WORKER', os.environ.get('PYTEST_XDIST_WORKER', ''))}_"
"""What the names of the files begin with that some of these leave behind: with something else in tests side by side,
and with the same in every process that is started by one of those."""

FAULTY: dict[type[TensorTransportManager], str] = {}
"""Every faulty transport that was imported, and the clause that it breaks."""
NEEDS_CUDA: set[type[TensorTransportManager]] = set()
"""Those of them that are wrong with GPU memory alone: they are caught where there is a GPU, with --rdt-devices=cuda."""
ONLY_IN_A_SOAK: set[type[TensorTransportManager]] = set()
"""Those of them that are wrong too rarely for any other profile."""
RIGHT_IN_ONE_PROCESS: set[type[TensorTransportManager]] = set()
"""Those of them that break nothing as long as all actors share a process."""


def breaks(clause: str, *, across_processes: bool = False, cuda: bool = False, soak: bool = False) -> Callable[[T], T]:
    """Bind a faulty transport to the clause of the contract that it breaks.

    Args:
        clause: its id.
        across_processes: only where actors are processes of their own.
        cuda: only with GPU memory.
        soak: too rarely for anything but a soak.
    """

    def bind(transport: T) -> T:
        FAULTY[transport] = clause
        if across_processes:
            RIGHT_IN_ONE_PROCESS.add(transport)
        if cuda:
            NEEDS_CUDA.add(transport)
        if soak:
            ONLY_IN_A_SOAK.add(transport)
        return transport

    return bind


def every_faulty() -> dict[type[TensorTransportManager], str]:
    """`FAULTY` with all that there are: imports every module of this package."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return FAULTY
