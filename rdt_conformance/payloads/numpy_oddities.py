"""Numpy arrays that are no plain memory."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rdt_conformance.payloads.oddities import Oddity, OddPayload


def _objects(array: np.ndarray) -> object:
    return str(array.dtype), array.shape, array.tolist()


class OddNumpyPayload(OddPayload):
    """One numpy array that is no plain memory, of exactly that class: Ray hands a transport no subclass."""

    oddities: ClassVar = {
        # The elements of all of them are pointers.
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
