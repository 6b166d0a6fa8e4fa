"""Whether GPU memory stays what it is."""

from __future__ import annotations

from functools import partial
from typing import Any

import gpu_recipes as recipes
import torch
from figures_nccl import both_halves
from gpu_actors import MAIN, SOON, collect, differences, drop, extract, in_use, receive
from gpu_measuring import COMM, CUDA_IPC, MIB, NCCL, NIXL, ONE_GPU, actors


def memory() -> dict[str, Any]:
    """GPU memory that is in use, on each side, after 100 cycles and after 1,000."""
    result = {}
    for name, transport in {"cuda_ipc": CUDA_IPC, "nccl": NCCL, "nixl": NIXL}.items():
        if name == "nccl" and torch.cuda.device_count() < 2:
            result[name] = ONE_GPU
            continue
        with actors(transport, "0", "1" if name == "nccl" else "0") as pair:
            used = []
            for turn in range(1, 1001):
                recipe = partial(recipes.numbers, MIB + turn % 7 * 4096, turn)
                metadata = pair[0].do(extract, "load", recipe)
                if name == "nccl":
                    for half in both_halves(pair, metadata)[1]:
                        half.result(SOON)
                else:
                    pair[1].do(receive, "load", metadata, COMM)
                assert turn % 10 or pair[1].do(differences, "load", recipe) == []
                pair[1].do(drop, "load")
                pair[0].do(collect, "load", metadata)
                if turn in (100, 1000):
                    used.append([actor.do(in_use, lane=MAIN) for actor in pair])
            result[name] = {"bytes after 100": used[0], "bytes after 1000": used[1], "flat": used[0] == used[1]}
    return result
