"""Which libraries can be peers by themselves, and where."""

from __future__ import annotations

import importlib.util

import torch.distributed as dist

from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.loop import Contender
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.raw_gpu_libraries import RAW_GPU_LIBRARIES
from rdt_conformance.bench.raw_libraries import RAW_LIBRARIES

RAW_PEERS = tuple(dict.fromkeys((*RAW_LIBRARIES, *RAW_GPU_LIBRARIES)))
"""The names that ``--rdt-peers`` takes."""


def why_not_installed(name: str) -> str:
    """Why there is no such peer here, whatever is carried; empty if there is."""
    if name == "raw:NIXL" and importlib.util.find_spec("nixl") is None:
        return "it needs the package nixl, which is not installed"
    return ""


def why_not_raw(name: str, device: str, *, apart: bool) -> str:
    """Why one of them cannot carry memory of a type of device, or not there; empty if it can."""
    if name not in _libraries(device):
        return f"it moves {'GPU' if device == 'cpu' else 'CPU'} memory only"
    if name == "raw:NCCL" and not apart:
        return "it needs two GPUs, one for each side"
    if name == "raw:NCCL" and not dist.is_nccl_available():
        return "torch has no NCCL here"
    return ""


def raw_peer(name: str, source: Remote, load: Load) -> Contender:
    """Build one, with its other side in the source's process."""
    return _libraries(load.device)[name](source, load)


def _libraries(device: str) -> dict[str, type]:
    return RAW_LIBRARIES if device == "cpu" else RAW_GPU_LIBRARIES  # pyright: ignore[reportReturnType]
