"""What is known of a transport, and where from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

JAX_ARRAYS = ("jaxlib._jax.ArrayImpl", "jaxlib.xla_extension.ArrayImpl")
"""What the class of JAX's arrays is called, and was until spring 2025."""


@dataclass(frozen=True)
class Fact(Generic[T]):
    """Something known of a transport, and where it was learnt, in words."""

    value: T
    learnt: str


def type_name(kind: type) -> str:
    """``torch.Tensor``, ``mymodule.MyTransport``."""
    return f"{kind.__module__}.{kind.__qualname__}"
