"""Payloads of JAX's arrays in host memory. They are immutable, have no views, and lie row after row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from rdt_conformance.payloads.layouts import Shape, edge_shapes, small_shapes
from rdt_conformance.payloads.recipes import opaque
from rdt_conformance.payloads.value_kind import Form, GivenMemory, ValueKind, contents
from rdt_conformance.payloads.value_payloads import ValuePayloads

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ALWAYS = (
    "float32", "float16", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool", "complex64",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
_WIDE = ("float64", "int64", "uint64", "complex128")
"""Only where the user has asked for 64 bits (``JAX_ENABLE_X64``). Everywhere else JAX itself makes 32 of them."""
_LONG = 4099
"""Elements enough that some in every dtype are NaNs with a payload, denormals and -0.0."""


class ArrayForm(NamedTuple):
    """Dtype and shape of an array."""

    dtype: str
    shape: Shape


class JaxArrays(ValueKind):
    """Arrays on the CPU, of every dtype of at least a byte that JAX has there."""

    data_type: ClassVar[type] = type(jax.numpy.zeros(()))
    in_given_memory = True

    def _dtypes(self) -> tuple[str, ...]:
        return (*_ALWAYS, *_WIDE) if jax.config.jax_enable_x64 else _ALWAYS  # pyright: ignore[reportAttributeAccessIssue]

    def forms(self) -> dict[str, Form]:
        """Every dtype as a long array; small shapes, some without elements or dimensions, of the first one."""
        forms: dict[str, Form] = {dtype: ArrayForm(dtype, (_LONG,)) for dtype in self._dtypes()}
        for shape in small_shapes(4, 4096):
            forms[f"float32[{','.join(map(str, shape))}]"] = ArrayForm("float32", shape)
        return forms

    def strategy(self, max_bytes: int) -> SearchStrategy[Form]:
        """Any dtype, small shapes and those with sizes around powers of two and pages."""

        def of(dtype: str) -> SearchStrategy[Form]:
            size = _itemsize(dtype)
            shapes = [*small_shapes(size, max_bytes), *edge_shapes(size, max_bytes)]
            return st.sampled_from(shapes).map(lambda shape: ArrayForm(dtype, shape))

        return st.sampled_from(self._dtypes()).flatmap(of)

    def sized(self, nbytes: int) -> Form:
        """Bytes."""
        return ArrayForm("uint8", (nbytes,))

    def nbytes(self, form: Any) -> int:
        """Exactly those of its elements."""
        return math.prod(form.shape) * _itemsize(form.dtype)

    def build(self, form: Any, seed: int, memory: GivenMemory) -> jax.Array:
        """An array over memory that was given, as one that JAX took over from numpy without copying."""
        dtype = _dtype(form.dtype)
        given = memory(self.nbytes(form))
        given[...] = contents(given.size, seed)
        if form.dtype == "bool":
            given &= 1
        array = jax.device_put(given.view(dtype).reshape(form.shape), jax.devices("cpu")[0], may_alias=True)
        return array.block_until_ready()

    def difference(self, sent: jax.Array, received: jax.Array) -> str:
        """Dtype, shape and every byte."""
        if received.is_deleted():
            return "has been deleted"
        if received.dtype != sent.dtype:
            return f"has dtype {received.dtype}, sent {sent.dtype}"
        if received.shape != sent.shape:
            return f"has shape {list(received.shape)}, sent {list(sent.shape)}"
        wrong = _bytes(received) != _bytes(sent)
        if not wrong.any():
            return ""
        place = int(np.argmax(wrong))
        return (
            f"byte {place} is 0x{_bytes(received)[place]:02X}, sent 0x{_bytes(sent)[place]:02X}; "
            f"{np.count_nonzero(wrong)} of {wrong.size} bytes differ"
        )

    def meta(self, value: jax.Array) -> tuple[Shape, np.dtype]:
        """As the array itself says."""
        return value.shape, value.dtype


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def _itemsize(name: str) -> int:
    return _dtype(name).itemsize


def _bytes(array: jax.Array) -> np.ndarray:
    """Its bytes, in row-major order."""
    plain = np.asarray(array)
    return np.ascontiguousarray(plain.view(opaque(plain.itemsize))).reshape(-1).view(np.uint8)


KIND = ValuePayloads(JaxArrays())
