"""Loads of JAX's arrays in host memory. They are written in place, as no user of JAX could: every turn sends others."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64
"""Bytes. XLA takes memory over from numpy only if it begins at a multiple of them, and copies it if not."""


def empty(shape: tuple[int, ...], dtype: str) -> jax.Array:
    """An array with anything in it, over memory of its own that numpy made.

    Args:
        shape: of the array.
        dtype: as torch calls it without the prefix; JAX has 32 bits of most that are of 64.
    """
    of = np.dtype(getattr(ml_dtypes, dtype, dtype))
    whole = np.empty(int(np.prod(shape)) * of.itemsize + _ALIGNMENT, np.uint8)
    begin = -whole.ctypes.data % _ALIGNMENT
    memory = whole[begin : begin + whole.size - _ALIGNMENT].view(of).reshape(shape)
    return jax.device_put(memory, jax.devices("cpu")[0], may_alias=True).block_until_ready()


def form_of(array: jax.Array) -> tuple[tuple[int, ...], str]:
    """Shape and dtype."""
    return tuple(array.shape), array.dtype.name


def bytes_of(array: jax.Array) -> NDArray[np.uint8]:
    """Its bytes: those in memory themselves, which numpy is only given to read."""
    return np.asarray(array).reshape(-1).view(np.uint8)
