"""Figures of transports as Ray uses them."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gpu_recipes as recipes
import torch
from gpu_measuring import GIB, MIB, TURNS, summary


def through_ray() -> dict[str, Any]:
    """From the call of one actor to the end of the other's, with both on one GPU."""
    import ray
    from ray.experimental import register_tensor_transport

    from reference_transports.cuda_ipc import CudaIpcTransport

    register_tensor_transport("CUDA_IPC_REFERENCE", ["cuda"], CudaIpcTransport, torch.Tensor)

    class Worker:
        @ray.method(tensor_transport="CUDA_IPC_REFERENCE")
        def make(self, recipe: Any) -> Any:
            return recipe()

        def use(self, tensors: list[torch.Tensor]) -> int:
            return len(tensors)

    ray.init(num_gpus=1, log_to_driver=False)
    remote: Any = ray.remote(num_gpus=0.5)(Worker)
    source, destination = remote.remote(), remote.remote()
    loads = {
        "1 MiB": partial(recipes.empty_bytes, MIB),
        "1 GiB": partial(recipes.empty_bytes, GIB),
        "1 of 512,000 bytes": partial(recipes.split, 1000, 1),
        "1,000 of one storage": partial(recipes.split, 1000),
    }
    result: dict[str, Any] = {}
    for name, recipe in loads.items():
        seconds = []
        for _ in range(TURNS + 5):
            began = time.monotonic()
            ray.get(destination.use.remote(source.make.remote(recipe)))
            seconds.append(time.monotonic() - began)
        result[name] = summary(seconds[5:])
    ray.shutdown()
    result["1 GiB x 1 MiB"] = round(result["1 GiB"]["median_us"] / result["1 MiB"]["median_us"], 2)
    many, one = result["1,000 of one storage"]["median_us"], result["1 of 512,000 bytes"]["median_us"]
    result["1,000 of one storage x 1"] = round(many / one, 2)
    return result
