"""Torch tensors that are no plain memory."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from rdt_conformance.payloads.oddities import Oddity, OddPayload
from rdt_conformance.payloads.torch_memory import dtype_name, look


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

        def apply(which: str) -> Any:
            def pick(value: Any) -> Any:
                return getattr(value, which) if isinstance(value, cls) else value

            return func(*map(pick, args), **{name: pick(value) for name, value in (kwargs or {}).items()})

        first, second = apply("first"), apply("second")
        return cls(first, second) if isinstance(first, torch.Tensor) else first

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Name the type only: torch would ask for values."""
        return f"PairTensor({list(self.shape)})"


def _numbers(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def _sparse() -> torch.Tensor:
    """Sparse and uncoalesced: one place is listed twice."""
    return torch.sparse_coo_tensor(torch.tensor([[0, 2, 0], [1, 3, 1]]), torch.tensor([1.5, -2.0, 4.0]), (3, 4))


def _nested(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([_numbers(2, 3), _numbers(1, 3)], layout=layout)


def _plain(*tensors: torch.Tensor) -> list[object]:
    looks = [look(tensor) for tensor in tensors]
    return [(each.dtype, each.shape, each.values().tobytes()) for each in looks]


def _dense(tensor: torch.Tensor) -> object:
    """A dense tensor of the same values passes for a sparse one."""
    return _plain(tensor.to_dense())


def _quantized(tensor: torch.Tensor) -> object:
    try:
        scale, zero_point = tensor.q_scale(), tensor.q_zero_point()
    except RuntimeError:  # torch takes that for a mistake of its own
        raise TypeError("its scale and zero point are lost") from None
    return dtype_name(tensor.dtype), scale, zero_point, _plain(tensor.int_repr())


def _parts(tensor: torch.Tensor) -> object:
    if not tensor.is_nested:
        raise TypeError("it is not nested")
    return _plain(*tensor.unbind())


def _pair(tensor: torch.Tensor) -> object:
    if not isinstance(tensor, PairTensor):
        raise TypeError("half of its contents is lost")
    return _plain(tensor.first, tensor.second)


def _meta(tensor: torch.Tensor) -> object:
    if not tensor.is_meta:
        raise TypeError("it has contents, where none were")
    return dtype_name(tensor.dtype), tuple(tensor.shape)


class OddTorchPayload(OddPayload):
    """One torch tensor that is no plain memory."""

    oddities: ClassVar = {
        "sparse COO tensor": Oddity(lambda: _sparse().coalesce(), _dense),
        "uncoalesced sparse COO tensor": Oddity(_sparse, _dense),
        "sparse CSR tensor": Oddity(lambda: _sparse().to_dense().to_sparse_csr(), _dense),
        "MKL-DNN tensor": Oddity(lambda: _numbers(2, 3).to_mkldnn(), _dense),
        "quantized tensor": Oddity(
            lambda: torch.quantize_per_tensor(_numbers(2, 3), 0.25, 3, torch.quint8), _quantized
        ),
        "nested tensor": Oddity(lambda: _nested(torch.strided), _parts),
        # The data pointers of the others are null.
        "jagged tensor": Oddity(lambda: _nested(torch.jagged), _parts, may_crash=True),
        "wrapper of two tensors": Oddity(lambda: PairTensor(_numbers(2, 3), -_numbers(2, 3)), _pair, may_crash=True),
        "meta tensor": Oddity(lambda: torch.empty(2, 3, device="meta"), _meta, may_crash=True),
    }

    @property
    def nbytes(self) -> int:
        """Bytes that its elements would have if they were stored plainly."""
        tensor = self.build()[0]
        return tensor.numel() * tensor.element_size()

    def build(self, device: str = "cpu") -> list[torch.Tensor]:
        """The tensor, a new one with every call."""
        return [tensor if tensor.is_meta else tensor.to(device) for tensor in super().build()]
