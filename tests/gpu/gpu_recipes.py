"""Tensors to send: the same in every process that makes them."""

from __future__ import annotations

from collections.abc import Callable

import torch

ODD_DTYPES = [torch.bool, torch.bfloat16, torch.uint16, torch.complex64, torch.complex128, torch.float8_e5m2]


def numbers(size: int, seed: int = 0) -> list[torch.Tensor]:
    """One tensor of so many bytes."""
    torch.manual_seed(seed)
    return [torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")]


def zeros(size: int) -> list[torch.Tensor]:
    """A buffer for that."""
    return [torch.zeros(size, dtype=torch.uint8, device="cuda")]


def like(recipe: Callable[[], list[torch.Tensor]], device: str) -> list[torch.Tensor]:
    """Contiguous buffers for what a recipe makes."""
    return [torch.zeros(each.shape, dtype=each.dtype, device=device) for each in recipe()]


def many(count: int) -> list[torch.Tensor]:
    """Small tensors, each with a storage of its own, some of them empty."""
    return [torch.full((index % 7 * 9,), index, dtype=torch.int32, device="cuda") for index in range(count)]


def split(count: int, parts: int | None = None) -> list[torch.Tensor]:
    """The same bytes in one storage, as so many tensors, or in fewer parts."""
    whole = torch.arange(count * 64, device="cuda")
    return list(whole.split(whole.numel() // (parts or count)))


def alike(count: int) -> list[torch.Tensor]:
    """Small tensors, each with a storage of its own, in one allocation: torch takes them from there."""
    return [torch.full((64,), index, device="cuda") for index in range(count)]


def everything() -> list[torch.Tensor]:
    """Dtypes and layouts, alone and of one storage, small and large."""
    torch.manual_seed(1)
    base = torch.randn(300, 200, device="cuda")
    raw = torch.randint(0, 2, (3, 16), dtype=torch.uint8, device="cuda")
    tensors = [raw.view(dtype) for dtype in ODD_DTYPES]
    tensors += [base, base.t(), base[:, ::2], base[1], base[:0], base[2:50], base, base.unfold(0, 20, 10)]
    tensors += [torch.tensor(7, device="cuda"), torch.ones(1, device="cuda").expand(4)]
    tensors += [torch.randn(5, dtype=torch.complex64, device="cuda").conj()]
    tensors += [torch.randn(5, dtype=torch.complex64, device="cuda").conj().imag]
    tensors += [torch.ones(3, device="cuda", requires_grad=True), torch.arange(1 << 20, device="cuda")]
    return tensors


def nothing() -> list[torch.Tensor]:
    """No tensor."""
    return []


def empty() -> list[torch.Tensor]:
    """Tensors without a byte."""
    return [torch.empty(0, 3, device="cuda"), torch.empty(2, 0, dtype=torch.int8, device="cuda")]


def late(size: int, cycles: int = 3_000_000_000) -> list[torch.Tensor]:
    """Like `numbers`, but on a GPU that is busy for a second or two before it gets to make them."""
    (tensor,) = numbers(size)
    made = torch.zeros_like(tensor)
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    made.copy_(tensor)
    return [made]
