"""Figures of transports as Ray uses them."""

from __future__ import annotations

import time
from typing import Any

import ray
import torch
from figures_one_sided import LOADS
from gpu_measuring import TURNS, WARMING, summary
from ray.experimental import register_tensor_transport


def through_ray() -> dict[str, Any]:
    """From the call of one actor to the end of the other's, with both on one GPU; beside Ray's own transport."""
    from reference_transports.cuda_ipc import CudaIpcTransport

    register_tensor_transport("CUDA_IPC_REFERENCE", ["cuda"], CudaIpcTransport, torch.Tensor)
    ray.init(num_gpus=1, log_to_driver=False)
    try:
        return {name: _through(name) for name in ("CUDA_IPC_REFERENCE", "CUDA_IPC")}
    finally:
        ray.shutdown()


def _through(transport: str) -> dict[str, Any]:
    class Worker:
        def __init__(self) -> None:
            self._loads = {name: recipe() for name, recipe in LOADS.items()}

        @ray.method(tensor_transport=transport)
        def make(self, name: str) -> list[torch.Tensor]:
            return self._loads[name]

        def use(self, tensors: list[torch.Tensor]) -> int:
            return len(tensors)

    remote: Any = ray.remote(num_gpus=0.5)(Worker)
    source, destination = remote.remote(), remote.remote()
    result: dict[str, Any] = {}
    for name in LOADS:
        seconds = []
        for _ in range(TURNS + WARMING):
            began = time.monotonic()
            ray.get(destination.use.remote(source.make.remote(name)))
            seconds.append(time.monotonic() - began)
        result[name] = summary(seconds[WARMING:])
    for actor in (source, destination):
        ray.kill(actor)
    result["1 GiB x 1 MiB"] = round(result["1 GiB"]["median_us"] / result["1 MiB"]["median_us"], 2)
    for name in ("1,000 of one storage", "1,000 of one allocation"):
        result[f"{name} x 1"] = round(result[name]["median_us"] / result["1 of 512,000 bytes"]["median_us"], 2)
    return result
