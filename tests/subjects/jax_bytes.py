"""JAX's arrays as bytes, in the metadata."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rdt_conformance import TransportProfile
from subjects.base import PackingTransport

ARRAY = type(jnp.zeros(()))


class JaxBytesTransport(PackingTransport):
    """Right: numpy has no names for some dtypes of JAX's, but carries them all if the dtype goes along."""

    def pack(self, value: Any) -> bytes:
        if type(value) is not ARRAY:
            raise ValueError(f"a {type(value).__name__} is no array")
        plain = np.asarray(value)
        return pickle.dumps((plain.dtype, plain.shape, plain.tobytes()))

    def unpack(self, packed: bytes) -> jax.Array:
        dtype, shape, data = pickle.loads(packed)
        return jnp.array(np.frombuffer(data, dtype).reshape(shape), copy=True)

    def meta(self, value: jax.Array) -> tuple[Any, Any]:
        return value.shape, value.dtype


class SendsBfloat16AsFloat32(JaxBytesTransport):
    """Converts what numpy cannot name to what it can, and back; no NaN survives that as it was."""

    def pack(self, value: Any) -> bytes:
        small = type(value) is ARRAY and value.dtype == jnp.bfloat16
        return super().pack(value.astype(jnp.float32).astype(jnp.bfloat16) if small else value)


class GivesScalarsADimension(JaxBytesTransport):
    """Makes one dimension where there was none."""

    def unpack(self, packed: bytes) -> jax.Array:
        return jnp.atleast_1d(super().unpack(packed))


PROFILE = TransportProfile(JaxBytesTransport, data_type=ARRAY)
BFLOAT16 = TransportProfile(SendsBfloat16AsFloat32, data_type=ARRAY)
SCALARS = TransportProfile(GivesScalarsADimension, data_type=ARRAY)
