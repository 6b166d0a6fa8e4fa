"""Errors that are kept quiet, and metadata that are believed."""

from __future__ import annotations

import socket
import time
from typing import Any

from ray.experimental import TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._layout import flat_bytes, landing
from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.socket_pull import SocketPullTransport


@breaks("R4")
class ReceiveKeepsQuiet(SocketPullTransport):
    """Logs an error where it should raise it, and returns tensors that nothing was received into."""

    def recv_multiple_tensors(self, obj_id: str, tensor_transport_metadata: Any, *args: Any) -> list[Any]:
        try:
            return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, *args)
        except (ConnectionError, ValueError):
            return landing(tensor_transport_metadata.tensor_meta)


@breaks("R4")
class RetriesForever(SocketPullTransport):
    """Hopes that the source will come back."""

    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        while True:
            try:
                return super().recv_multiple_tensors(*args)
            except ConnectionError:
                time.sleep(0.01)


@breaks("R10")
class KeepsWhatWasRefused(SocketPullTransport):
    """Takes the tensors of a fetch off its list when they have come, which they never do if it was refused."""

    def __init__(self) -> None:
        super().__init__()
        self._landing: dict[str, list[Any]] = {}

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        except ConnectionAbortedError:
            raise
        except ConnectionError:
            self._landing[fetch_request.obj_id] = fetch_request.tensors
            raise


@breaks("R10")
class KeepsBuffersThatItRefused(SocketPullTransport):
    """Notes what it is about to fetch before it looks at the buffers, and strikes that off when it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self._promised: dict[str, Any] = {}

    def fetch_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator: Any, target_buffers: Any = None
    ) -> FetchRequest:
        self._promised[obj_id] = target_buffers
        request = super().fetch_multiple_tensors(obj_id, tensor_transport_metadata, communicator, target_buffers)
        del self._promised[obj_id]
        return request


@breaks("R10", across_processes=True)
class LeavesASocketToTheDead(SocketPullTransport):
    """Looks whether anybody listens there, and closes the socket if so."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: list[socket.socket] = []

    def fetch_multiple_tensors(self, obj_id: str, tensor_transport_metadata: Any, *args: Any) -> FetchRequest:
        probe = socket.socket()
        try:
            probe.connect(tensor_transport_metadata.address)
            probe.close()
        except OSError:
            self._sockets.append(probe)
        return super().fetch_multiple_tensors(obj_id, tensor_transport_metadata, *args)


@breaks("R6")
class BelievesItsMetadata(InlineTransport):
    """Copies as many bytes as fit, whatever the metadata say."""

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: TensorTransportMetadata, *args: Any
    ) -> list[Any]:
        assert isinstance(tensor_transport_metadata, InlineMetadata)
        tensors = landing(tensor_transport_metadata.tensor_meta)
        for tensor, data in zip(tensors, tensor_transport_metadata.payload, strict=False):
            length = min(tensor.nbytes, len(data))
            flat_bytes(tensor)[:length] = data[:length]
        return tensors
