"""What the reference transports share: where the bytes of tensors are, and fresh memory for them."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from reference_transports._layout import landing

HUGE = Path("/sys/kernel/mm/transparent_hugepage")


def flags_of(address: int) -> set[str]:
    """What the system has noted of the mapping that an address is in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(span[1], 16) <= address < int(span[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    raise LookupError(f"{address:x} is not mapped")


def test_large_fresh_memory_is_wished_in_huge_pages() -> None:
    small, large = landing([((8,), torch.float32), ((24 << 20, 4), torch.bfloat16)])  # too large to come from a heap
    assert (small.shape, large.shape, large.dtype) == ((8,), (24 << 20, 4), torch.bfloat16)
    assert ("hg" in flags_of(large.data_ptr() + large.nbytes // 2)) == HUGE.exists()
    assert "hg" not in flags_of(small.data_ptr())
    large.resize_(25 << 20, 4)  # it is torch's own memory
