"""Numpy arrays that are more or less than plain memory."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rdt_conformance.payloads.oddities import Oddity, OddPayload


def _objects(array: np.ndarray) -> object:
    return str(array.dtype), array.shape, array.tolist()


def _gappy() -> np.ndarray:
    fields: Any = {"names": ["number", "share"], "formats": ["i4", "f8"], "offsets": [0, 8], "itemsize": 24}
    return np.array([(1, 2.5), (3, 4.5)], np.dtype(fields))


def _records(array: np.ndarray) -> object:
    return array.dtype.names, array.shape, array.tolist()


class OddNumpyPayload(OddPayload):
    """One numpy array that is more or less than plain memory; of no subclass, as Ray hands none to a transport."""

    oddities: ClassVar = {
        "structure with gaps": Oddity(_gappy, _records),
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
