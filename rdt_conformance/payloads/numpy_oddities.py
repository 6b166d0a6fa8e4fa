"""Numpy arrays that are more or less than plain memory."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rdt_conformance.payloads import numpy_memory
from rdt_conformance.payloads.oddities import Oddity, OddPayload


def _bytes_of(array: np.ndarray) -> object:
    seen = numpy_memory.look(array)
    return seen.dtype, seen.shape, seen.values().tobytes()


def _objects(array: np.ndarray) -> object:
    return str(array.dtype), array.shape, array.tolist()


def _masked(array: np.ndarray) -> object:
    if not isinstance(array, np.ma.MaskedArray):
        raise TypeError("its mask is lost")
    return _bytes_of(array.data), _bytes_of(np.ma.getmaskarray(array))


class OddNumpyPayload(OddPayload):
    """One numpy array that is more or less than plain memory."""

    oddities: ClassVar = {
        "masked array": Oddity(lambda: np.ma.MaskedArray([1.5, 2.5, 3.5], mask=[False, True, False]), _masked),
        "matrix": Oddity(lambda: np.matrix([[1.5, 2.5], [3.5, 4.5]]), _bytes_of),
        "record array": Oddity(lambda: np.rec.array([(1, 2.5), (3, 4.5)], dtype="i4,f8"), _bytes_of),
        # The elements of the others are pointers.
        "array of objects": Oddity(lambda: np.array([1, "two", None], object), _objects, may_crash=True),
        "structure with objects": Oddity(
            lambda: np.array([(1, "one"), (2, "two")], [("number", "i4"), ("name", object)]), _objects, may_crash=True
        ),
        "array of strings of any length": Oddity(
            lambda: np.array(["short", "long enough to lie elsewhere" * 9], np.dtypes.StringDType()),
            _objects,
            may_crash=True,
        ),
    }
