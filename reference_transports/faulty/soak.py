"""Wrong so rarely that only long work shows it. See `reference_transports.faulty`."""

from __future__ import annotations

import itertools
import os
from typing import Any

from reference_transports.faulty import breaks
from reference_transports.inline import InlineTransport
from reference_transports.socket_pull import SocketPullTransport

_MANY = 50
_SEVERAL = 20
"""One process receives some dozens of objects in a minute, fewer after a death."""


@breaks("G1", soak=True)
class ForgetsOneSegmentInFifty(InlineTransport):
    """Puts every fiftieth object into a segment of shared memory as well, and never lets go of that."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._segments: list[int] = []

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        if next(self._numbers) % _MANY == 0:
            self._segments.append(os.memfd_create(obj_id))
        return metadata


@breaks("R2", soak=True)
class LosesOneObjectInTwentyAfterADeath(SocketPullTransport):
    """Once a process that it knew has died, it refuses to look for every twentieth object that it receives."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self._mourning = False

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        if self._mourning and next(self._numbers) % _SEVERAL == 0:
            raise LookupError("there is no such object")
        try:
            return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)
        except ConnectionError:
            self._mourning = True
            raise


@breaks("R2", soak=True)
class DiesSomeTimeAfterAnother(SocketPullTransport):
    """Once a process that it knew has died, it ends its own with the twentieth object that it receives."""

    def __init__(self) -> None:
        super().__init__()
        self._left = _SEVERAL
        self._mourning = False

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        self._left -= self._mourning
        if not self._left:
            os.abort()
        try:
            return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)
        except ConnectionError:
            self._mourning = True
            raise
