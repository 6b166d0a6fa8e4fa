"""Help for the tests of the payloads."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from hypothesis import settings, strategies as st

from rdt_conformance.payloads import kind_for
from rdt_conformance.payloads.recipes import ArrayPayload

KINDS: dict[str, Any] = {"torch": kind_for(torch.Tensor), "numpy": kind_for(np.ndarray)}

quick = settings(max_examples=40, deadline=None, database=None, derandomize=True)


def both_kinds(**limits: Any) -> st.SearchStrategy[tuple[Any, ArrayPayload]]:
    """A kind, and one of its payloads."""
    return st.one_of([st.tuples(st.just(kind), kind.payloads(**limits)) for kind in KINDS.values()])


def honest_copy(tensor: Any) -> Any:
    """A contiguous copy made by the array library, without the oracle's help."""
    if isinstance(tensor, np.ndarray):
        return tensor.copy()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def flip(tensor: Any, place: int) -> None:
    """Turn over the lowest bit of one byte, counted from a tensor's first."""
    address = tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr()
    (ctypes.c_ubyte * 1).from_address(address + place)[0] ^= 1
