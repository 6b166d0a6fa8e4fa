"""Transports that are wrong on purpose, each in one way, to prove that the suite notices.

Each is a few lines on top of a good one, named for its fault and bound by `breaks` to the clause it breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ray.experimental import TensorTransportManager

T = TypeVar("T", bound=type[TensorTransportManager])

FAULTY: dict[type[TensorTransportManager], str] = {}
"""Every faulty transport that was imported, and the clause that it breaks."""


def breaks(clause: str) -> Callable[[T], T]:
    """Bind a faulty transport to the clause of the contract that it breaks."""

    def bind(transport: T) -> T:
        FAULTY[transport] = clause
        return transport

    return bind
