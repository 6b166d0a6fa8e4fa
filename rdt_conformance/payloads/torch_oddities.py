"""Torch tensors that are no plain memory."""

from __future__ import annotations

from typing import ClassVar

import torch

from rdt_conformance.payloads.oddities import Oddity, OddPayload
from rdt_conformance.payloads.torch_memory import dtype_name, look


def _numbers(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def _sparse() -> torch.Tensor:
    """Sparse and uncoalesced: one place is listed twice."""
    return torch.sparse_coo_tensor(torch.tensor([[0, 2, 0], [1, 3, 1]]), torch.tensor([1.5, -2.0, 4.0]), (3, 4))


def _nested() -> torch.Tensor:
    return torch.nested.nested_tensor([_numbers(2, 3), _numbers(1, 3)], layout=torch.strided)


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


def _meta(tensor: torch.Tensor) -> object:
    if not tensor.is_meta:
        raise TypeError("it has contents, where none were")
    return dtype_name(tensor.dtype), tuple(tensor.shape)


class OddTorchPayload(OddPayload):
    """One torch tensor that is no plain memory, of exactly that class: Ray hands a transport no subclass."""

    oddities: ClassVar = {
        "sparse COO tensor": Oddity(lambda: _sparse().coalesce(), _dense),
        "uncoalesced sparse COO tensor": Oddity(_sparse, _dense),
        "sparse CSR tensor": Oddity(lambda: _sparse().to_dense().to_sparse_csr(), _dense),
        "MKL-DNN tensor": Oddity(lambda: _numbers(2, 3).to_mkldnn(), _dense),
        "quantized tensor": Oddity(
            lambda: torch.quantize_per_tensor(_numbers(2, 3), 0.25, 3, torch.quint8), _quantized
        ),
        "nested tensor": Oddity(_nested, _parts),
        # Its data pointer is null.
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
