"""Torch tensors that are no plain memory. A transport may refuse them; what it accepts has to arrive as it was."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from rdt_conformance.payloads import torch_memory
from rdt_conformance.payloads.recipes import Unreadable, list_differences


@dataclass(frozen=True)
class _Oddity:
    make: Callable[[], torch.Tensor]
    parts: Callable[[torch.Tensor], Sequence[torch.Tensor]]
    """The plain tensors that together tell all about such a tensor; raises for one that is of another kind."""
    has_memory: bool = True


class PairTensor(torch.Tensor):
    """A subclass that wraps two tensors and has no memory of its own, as sharded and quantized tensors do."""

    first: torch.Tensor
    second: torch.Tensor

    @staticmethod
    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> PairTensor:
        """Wrap two tensors of the same shape and dtype."""
        pair = torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype, device=first.device)
        pair.first, pair.second = first, second
        return pair

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do to both tensors what is asked of the pair."""

        def of(which: str) -> Any:
            def pick(value: Any) -> Any:
                return getattr(value, which) if isinstance(value, cls) else value

            return func(*map(pick, args), **{name: pick(value) for name, value in (kwargs or {}).items()})

        first, second = of("first"), of("second")
        return cls(first, second) if isinstance(first, torch.Tensor) else first

    def __repr__(self) -> str:  # type: ignore[override]
        """Name the type only: printing the values would dispatch."""
        return f"PairTensor({list(self.shape)})"


def _numbers(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def _uncoalesced() -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0, 2, 0], [1, 3, 1]]), torch.tensor([1.5, -2.0, 4.0]), (3, 4))


def _quantized_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    scale = torch.tensor([tensor.q_scale(), tensor.q_zero_point()], dtype=torch.float64)
    return [tensor.int_repr(), scale]


def _meta_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if not tensor.is_meta:
        raise TypeError("it has contents, a meta tensor has none")
    return []


def _dense(tensor: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.to_dense()]


def _pair_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if not isinstance(tensor, PairTensor):
        raise TypeError("half of its contents is lost")
    return [tensor.first, tensor.second]


_ODDITIES = {
    "sparse COO": _Oddity(lambda: _uncoalesced().coalesce(), _dense),
    "sparse COO, uncoalesced": _Oddity(_uncoalesced, _dense),
    "sparse CSR": _Oddity(lambda: _uncoalesced().to_dense().to_sparse_csr(), _dense),
    "MKL-DNN": _Oddity(lambda: _numbers(2, 3).to_mkldnn(), _dense),
    "quantized": _Oddity(
        lambda: torch.quantize_per_tensor(_numbers(2, 3), 0.25, 3, torch.quint8), _quantized_parts
    ),
    "nested": _Oddity(
        lambda: torch.nested.nested_tensor([_numbers(2, 3), _numbers(1, 3)]), lambda tensor: tensor.unbind()
    ),
    "nested, jagged": _Oddity(
        lambda: torch.nested.nested_tensor([_numbers(2, 3), _numbers(1, 3)], layout=torch.jagged),
        lambda tensor: tensor.unbind(),
        has_memory=False,
    ),
    "wrapper of two tensors": _Oddity(
        lambda: PairTensor(_numbers(2, 3), -_numbers(2, 3)), _pair_parts, has_memory=False
    ),
    "meta": _Oddity(lambda: torch.empty(2, 3, device="meta"), _meta_parts, has_memory=False),
}


@dataclass(frozen=True, repr=False)
class OddPayload:
    """One tensor that is no plain memory; see `rdt_conformance.payloads.base.Refusable`."""

    name: str
    count: int = 1

    @property
    def has_memory(self) -> bool:
        """False if its data pointer is null: a transport that reads there, instead of refusing, crashes its process."""
        return _ODDITIES[self.name].has_memory

    @property
    def nbytes(self) -> int:
        """Bytes that its elements would have if it were plain."""
        tensor = self.build()[0]
        return tensor.numel() * tensor.itemsize

    def build(self, device: str = "cpu") -> list[torch.Tensor]:
        """The tensor, a new one with every call."""
        with warnings.catch_warnings():
            # Torch warns that some of these are prototypes, others on their way out.
            warnings.simplefilter("ignore")
            tensor = _ODDITIES[self.name].make()
            return [tensor if tensor.is_meta else tensor.to(device)]

    def differences(self, received: Sequence[Any]) -> list[str]:
        """How what was received differs; a plain tensor of equal dtype, shape and values passes for a sparse one."""
        sent = self.build()[0]
        return list_differences(1, received, lambda _, tensor: self._difference(sent, tensor))

    def _difference(self, sent: torch.Tensor, got: object) -> str:
        if not isinstance(got, torch.Tensor):
            return f"is a {type(got).__name__}, sent {self.name}"
        if got.dtype != sent.dtype:
            return f"has dtype {torch_memory.dtype_name(got.dtype)}, sent {torch_memory.dtype_name(sent.dtype)}"
        parts = _ODDITIES[self.name].parts
        try:
            if not sent.is_nested and got.shape != sent.shape:
                return f"has shape {list(got.shape)}, sent {list(sent.shape)}"
            ours, theirs = parts(sent), parts(got)
        except (TypeError, RuntimeError, NotImplementedError) as error:
            return f"is {torch_memory.kind_of(got)}, sent {self.name} ({error})"
        same = len(ours) == len(theirs) and all(map(_same, ours, theirs))
        return "" if same else f"has other contents than the {self.name} tensor that was sent"

    def __repr__(self) -> str:
        return f"1 tensor: {self.name}"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        mine, others = torch_memory.look(one), torch_memory.look(other)
    except Unreadable:
        return False
    return (
        mine.dtype == others.dtype
        and mine.shape == others.shape
        and mine.values().tobytes() == others.values().tobytes()
    )


@lru_cache
def _available() -> tuple[OddPayload, ...]:
    """Those that this version of torch can make."""
    found = []
    for name in _ODDITIES:
        try:
            OddPayload(name).build()
        except Exception:
            # Each is optional in torch, and each fails in its own way where it is left out.
            continue
        found.append(OddPayload(name))
    return tuple(found)


def refusable_payloads() -> list[OddPayload]:
    """One payload of each kind that this version of torch can make."""
    return list(_available())
