"""What processes hold of a GPU's memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import torch

from rdt_conformance.observe import Growth, Watch, growth
from rdt_conformance.observe.resources import GPU_MEMORY, GPU_TENSORS

SENT = 512 << 10


def grown(cycle: Callable[[], object]) -> Growth:
    torch.zeros(1, device="cuda")

    def run(cycles: int) -> None:
        for _ in range(cycles):
            cycle()

    return growth(run, Watch(), cycles=6, most_cycles=200, deadline=time.monotonic() + 60, payload_bytes=SENT)


def allocated_by_the_driver(nbytes: int) -> int:
    address = ctypes.c_uint64()
    assert ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)) == 0
    return address.value


def test_tensors_that_are_kept_leak_and_those_that_are_freed_do_not() -> None:
    kept = []
    found = grown(lambda: kept.append(torch.empty(SENT, dtype=torch.uint8, device="cuda")))
    assert GPU_TENSORS in [leak.kind for leak in found.leaks]
    assert "memory of tensors on GPUs grew from" in found.leaks[0].sentence
    kept.clear()
    assert not grown(lambda: torch.empty(SENT, dtype=torch.uint8, device="cuda")).leaks


def test_what_the_driver_hands_out_past_torch_is_seen() -> None:
    kept = []
    found = grown(lambda: kept.append(allocated_by_the_driver(SENT)))
    for address in kept:
        ctypes.CDLL("libcuda.so.1").cuMemFree_v2(ctypes.c_uint64(address))
    assert [leak.kind for leak in found.leaks] == [GPU_MEMORY]


def test_segments_that_can_be_expanded_are_no_leak() -> None:
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    sizes = iter(range(SENT, SENT << 10, 4096))
    try:
        found = grown(lambda: torch.empty(next(sizes), dtype=torch.uint8, device="cuda"))
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    assert not found.leaks


def test_a_process_that_uses_no_gpu_holds_none() -> None:
    import subprocess
    import sys

    script = (
        "import torch; from rdt_conformance.observe import Watch; held = Watch().settled(); "
        "print(held.gpus, 'gpu tensor bytes' in held.counts, torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["{}", "False", "False"]
