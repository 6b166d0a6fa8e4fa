"""What the GPU transports do, in figures: each by one command, each a median of at least 30 with its quartiles.

    python tests/gpu/figures.py nccl abort cuda_ipc nixl memory ray --out=DIR

Without Ray, but for the last, with the processes and threads that Ray would have. Prints JSON, and writes it to a file
of the figure's name in DIR.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from figures_memory import memory
from figures_nccl import aborts, nccl
from figures_one_sided import cuda_ipc, nixl
from figures_ray import through_ray


def main() -> None:
    """Make the figures that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("figures", nargs="+", choices=list(FIGURES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name in options.figures:
        cards = sorted({torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())})
        figure = {"figure": name, "cards": cards, "torch": torch.__version__, **FIGURES[name]()}
        text = json.dumps(figure, indent=1)
        print(text, flush=True)
        if options.out:
            (options.out / f"{name}.json").write_text(text + "\n")


FIGURES: dict[str, Callable[[], dict[str, Any]]] = {
    "nccl": nccl,
    "abort": aborts,
    "cuda_ipc": cuda_ipc,
    "nixl": nixl,
    "memory": memory,
    "ray": through_ray,
}

if __name__ == "__main__":
    main()
