"""What the reference transports share: where the bytes of tensors are, and fresh memory for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from reference_transports._layout import bytes_of, describe

HUGE = Path("/sys/kernel/mm/transparent_hugepage")
PROGRAM = """
import re
from pathlib import Path
import torch
from reference_transports._layout import landing

def flags_of(address):
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(span[1], 16) <= address < int(span[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise LookupError(f"{address:x} is not mapped")

small, large = landing([((8,), torch.float32), ((24 << 20, 4), torch.bfloat16)])  # too large to come from a heap
assert (small.shape, large.shape, large.dtype) == ((8,), (24 << 20, 4), torch.bfloat16)
print("hg" in flags_of(large.data_ptr() + large.nbytes // 2), "hg" in flags_of(small.data_ptr()))
large.resize_(25 << 20, 4)  # it is torch's own memory
"""


def test_large_fresh_memory_is_wished_in_huge_pages() -> None:
    """In a process of its own: where others have had large memory before, small memory may lie there later."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(HUGE.exists()), "False"]


DTYPES = sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)


@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bytes_of_every_dtype_are_its_memory(dtype: torch.dtype) -> None:
    for shape in ((), (1,), (5,), (2, 3), (0,), (2, 0), (1, 1, 7)):
        tensor = torch.empty(shape, dtype=dtype)
        found = bytes_of(tensor)
        assert (found.dtype, found.shape, found.stride()) == (torch.uint8, (tensor.nbytes,), (1,))
        assert found.data_ptr() == tensor.data_ptr() and found is not tensor


def test_the_bytes_of_unusual_tensors_are_their_memory() -> None:
    whole = torch.arange(60.0)
    odd = [whole[7::9][:1], whole.view(6, 10)[2:3, :1], whole[3:5].requires_grad_(), torch.nn.Parameter(whole[:4])]
    for tensor in odd:
        assert tensor.is_contiguous()
        assert torch.equal(bytes_of(tensor).view(torch.float32), tensor.detach().reshape(-1))
        assert bytes_of(tensor).data_ptr() == tensor.data_ptr()


def test_equal_tensors_are_described_by_one_pair() -> None:
    tensors = [torch.empty(3), torch.empty(3, 1), torch.empty(3), torch.empty(3, dtype=torch.int8), torch.empty(3)]
    described = describe(tensors)
    assert described == [(tensor.shape, tensor.dtype) for tensor in tensors]
    assert described[0] is described[2] is described[4] and len({id(each) for each in described}) == 3
    with_note = np.dtype(np.int8, metadata={"unit": "m"})
    arrays = [np.empty(2, np.int8), np.empty(2, with_note), np.empty(2, np.int8)]
    assert [dict(dtype.metadata or {}) for _, dtype in describe(arrays)] == [{}, {"unit": "m"}, {}]
