"""Reading numpy arrays as bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rdt_conformance.payloads.recipes import Look, Unreadable, opaque
from rdt_conformance.payloads.watching import Span


def look(received: object) -> Look:
    """A numpy array, ready to be compared.

    Raises:
        Unreadable: it is no numpy array, or one whose elements refer to memory elsewhere.
    """
    if not isinstance(received, np.ndarray):
        raise Unreadable(f"is a {type(received).__name__}, not a numpy.ndarray")
    return Look(str(received.dtype), received.shape, raw(received))


def raw(array: np.ndarray) -> np.ndarray:
    """The elements of an array as opaque ones, over the same memory.

    Raises:
        Unreadable: its elements refer to memory elsewhere.
    """
    if array.dtype.hasobject:
        raise Unreadable(f"has dtype {array.dtype}, whose elements are no plain bytes")
    return np.asarray(array).view(opaque(array.dtype.itemsize))


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def facts(array: np.ndarray) -> tuple[Mapping[str, object], int, np.ndarray]:
    """What `Fingerprint` asks about an array."""
    seen = {
        "type": type(array).__name__,
        "dtype": array.dtype,
        "shape": list(array.shape),
        "strides": array.strides,
        "data pointer": hex(array.ctypes.data),
        "writeable": array.flags.writeable,
    }
    owner = owner_of(array)
    return seen, owner.ctypes.data, look(owner).values()


def deviations(array: np.ndarray) -> list[str]:
    """How an array deviates from a plain one, each completing the sentence "tensor 3: …"."""
    checks = {
        f"is a {type(array).__name__}": type(array) is not np.ndarray,
        f"is not contiguous (shape {list(array.shape)}, strides {array.strides})": not array.flags.c_contiguous,
        "is not writeable": not array.flags.writeable,
        "is not aligned": not array.flags.aligned,
    }
    return [words for words, holds in checks.items() if holds]


def span(array: np.ndarray) -> Span:
    """The addresses of an array's elements."""
    return Span(array.ctypes.data, array.itemsize, array.shape, array.strides)
