"""Numpy's arrays in its own file format, in the metadata."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from rdt_conformance import TransportProfile
from subjects.base import PackingTransport


class NpyTransport(PackingTransport):
    """Right; refuses arrays of Python objects, as the format has no room for them."""

    def pack(self, value: Any) -> bytes:
        if type(value) is not np.ndarray:
            raise ValueError(f"a {type(value).__name__} is no plain array")
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return file.getvalue()

    def unpack(self, packed: bytes) -> np.ndarray:
        array = np.load(io.BytesIO(packed), allow_pickle=False)
        return np.ascontiguousarray(array).reshape(array.shape)

    def meta(self, value: np.ndarray) -> tuple[Any, Any]:
        return value.shape, value.dtype


class GivesScalarsADimension(NpyTransport):
    """Uses np.ascontiguousarray alone, which returns one dimension where there was none."""

    def unpack(self, packed: bytes) -> np.ndarray:
        return np.ascontiguousarray(super().unpack(packed))


PROFILE = TransportProfile(NpyTransport, data_type=np.ndarray)
SCALARS = TransportProfile(GivesScalarsADimension, data_type=np.ndarray)
