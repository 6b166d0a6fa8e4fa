"""Loads of JAX's arrays in host memory. They are written in place, as no user of JAX could: every turn sends others."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray


def empty(shape: tuple[int, ...], dtype: str) -> jax.Array:
    """An array with anything in it.

    Args:
        shape: of the array.
        dtype: as torch calls it without the prefix.

    Raises:
        ValueError: JAX makes another one of it, as it does of those with 64 bits unless ``JAX_ENABLE_X64`` is set.
    """
    asked = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = jax.device_put(np.empty(shape, asked), jax.devices("cpu")[0]).block_until_ready()
    if array.dtype != asked:
        raise ValueError(f"JAX makes {array.dtype} of {asked}")
    return array


def form_of(array: jax.Array) -> tuple[tuple[int, ...], str]:
    """Shape and dtype."""
    return tuple(array.shape), array.dtype.name


def bytes_of(array: jax.Array) -> NDArray[np.uint8]:
    """Its bytes, only to be read: those in memory themselves, or a copy of what is not on the host or not in order."""
    return np.asarray(array).reshape(-1).view(np.uint8)
