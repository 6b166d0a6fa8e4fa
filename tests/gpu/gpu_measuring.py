"""What the figures of all GPU transports share."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpu_actors import Actor, hiring
from ray.experimental import CommunicatorMetadata

MIB, GIB = 1 << 20, 1 << 30
TURNS = 40
WARMING = 5
"""Turns that do not count."""
ONE_GPU = "not measured: there is one GPU"
"""What stands in the place of a figure that takes two."""
COMM = CommunicatorMetadata()
NCCL = "reference_transports.nccl:NcclTransport"
CUDA_IPC = "reference_transports.cuda_ipc:CudaIpcTransport"
NIXL = "reference_transports.nixl:NixlTransport"


@contextmanager
def actors(transport: str, *gpus: str) -> Iterator[list[Actor]]:
    """An actor on each of the GPUs."""
    for hire in hiring(transport):
        yield [hire(each) for each in gpus]


def summary(seconds: list[float]) -> dict[str, float]:
    """In microseconds."""
    first, median, third = (round(each * 1e6, 1) for each in statistics.quantiles(seconds, n=4))
    return {"median_us": median, "quartiles_us": [first, third], "turns": len(seconds)}  # pyright: ignore[reportReturnType]


def rate(size: int, times: dict[str, Any]) -> dict[str, Any]:
    """With gigabytes per second."""
    return {**times, "GB_per_s": round(size / times["median_us"] / 1e3, 1)}
