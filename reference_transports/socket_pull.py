"""A one-sided transport over TCP with a fetch that is truly asynchronous and can be aborted.

The source registers its tensors and serves them, on threads of its own, to whoever knows the secret: its main thread
takes no part. A fetch has a thread as well, which fills the tensors while the receiver does something else; it holds
the *transfer*, never the request, so that a request which the receiver drops goes away, and ends its transfer.

A receiver gets what is in the source's memory while it is sent, not a snapshot made at extract. How the sockets are
used is in `_wire`. Linux; ``torch.Tensor`` and ``numpy.ndarray`` on the CPU.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._layout import flat_bytes, landing
from reference_transports._listener import Listener
from reference_transports._wire import ReceiverEnd, SourceEnd, Spares, source_of


class _Transfer:
    """One object on its way here."""

    def __init__(self, end: ReceiverEnd, tensors: list[Any]) -> None:
        self.end = end
        self.done = threading.Event()
        """Set when nothing will be written into the tensors any more."""
        self.failure: tuple[type[Exception], str] | None = None
        self._thread = threading.Thread(target=self._run, args=[tensors.copy()], name="rdt-socket-fetch", daemon=True)

    def start(self) -> None:
        """Begin; to be called when `abort_transport` can find the transfer."""
        self._thread.start()

    def _run(self, tensors: list[Any]) -> None:
        try:
            with closing(self.end):
                self.end.ask()
                self.end.receive(tensors)
        except Exception as error:
            self.failure = (type(error), str(error))
        finally:
            tensors.clear()
            self.done.set()

    def stop(self) -> None:
        """Return when the tensors are left alone."""
        self.end.abort()
        # A finalizer may run on any thread, this one included, and when the interpreter has stopped all threads.
        if threading.current_thread() is not self._thread and not sys.is_finalizing():
            self.done.wait()


@dataclass
class SocketFetchRequest(FetchRequest):
    """A fetch; dropping it ends the transfer and gives the socket and the thread back."""

    transfer: _Transfer

    def __del__(self) -> None:
        self.transfer.stop()


class SocketPullTransport(TensorTransportManager):
    """Serves tensors to receivers that connect and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listener = Listener(self, self._serve)
        self._spares = Spares()
        self._objects: dict[str, list[Any]] = {}
        self._fetching: weakref.WeakSet[_Transfer] = weakref.WeakSet()

    def tensor_transport_backend(self) -> str:
        """The name to register."""
        return "SOCKET_PULL"

    @staticmethod
    def is_one_sided() -> bool:
        """True: the source's threads serve receivers, whatever its main thread does."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """True: shutting down its connection ends a transfer at once."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: it works wherever Ray does."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """Describe the tensors and serve them from now on, and say where this process listens.

        Raises:
            ValueError: a tensor is not plain CPU memory. Nothing was set up.
        """
        metadata = self._listener.metadata(rdt_object)
        with self._lock:
            self._objects[obj_id] = list(rdt_object)
        return metadata

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing: a receiver finds the source by the object's metadata."""
        return CommunicatorMetadata()

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        """Start to fetch into the target buffers if there are any, else into fresh tensors.

        Raises:
            ValueError: the metadata are not ours, or the buffers do not fit. Nothing was written.
        """
        source = source_of(tensor_transport_metadata)
        tensors = landing(source.tensor_meta, target_buffers)
        transfer = _Transfer(ReceiverEnd(obj_id, source, self._spares), tensors)
        with self._lock:
            self._fetching.add(transfer)
        transfer.start()
        return SocketFetchRequest(obj_id, tensors, transfer)

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        """The tensors, when they have come.

        Raises:
            TimeoutError: they have not come within `timeout` seconds. The transfer goes on; wait again.
            ConnectionError: the source is gone or has freed the object, or the transfer was aborted. Nothing will be
                written into the tensors any more.
        """
        assert isinstance(fetch_request, SocketFetchRequest)
        transfer = fetch_request.transfer
        if not transfer.done.wait(None if timeout < 0 else min(timeout, threading.TIMEOUT_MAX)):
            raise TimeoutError(f"transfer {fetch_request.obj_id} is not complete after {timeout} s")
        if transfer.failure is not None:
            kind, text = transfer.failure  # a new exception for each wait: a shared one would keep their frames alive
            raise kind(text)
        return fetch_request.tensors

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Fetch and wait."""
        return self.wait_fetch_complete(
            self.fetch_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)
        )

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Never called: the transport is one-sided."""
        raise NotImplementedError("a one-sided transport does not send")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Stop serving the object. A receiver that is being served still gets it."""
        with self._lock:
            self._objects.pop(obj_id, None)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """End the fetches of this object that are in flight here."""
        with self._lock:
            transfers = [transfer for transfer in self._fetching if transfer.end.key == obj_id]
        for transfer in transfers:
            transfer.end.abort()

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        """Give a receiver what it asks for. The tensors live, freed or not, until this is done."""
        with self._lock:
            tensors = self._objects.get(obj_id)
        if tensors is None:
            end.refuse()
        else:
            end.send([flat_bytes(tensor) for tensor in tensors])
        return True
