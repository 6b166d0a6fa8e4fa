"""A two-sided transport over TCP: both ends take part, and either can abort.

Ray calls `send_multiple_tensors` on the source and `recv_multiple_tensors` on the destination, in no certain order.
They meet by the transfer's own id, which the owner draws in `get_communicator_metadata`: any number of transfers
between the same two actors, of the same or of several objects, stay apart. The bytes go from tensor memory to tensor
memory through the two sockets, with no copy in between. How the sockets are used is in `_wire`.

Linux; ``torch.Tensor`` and ``numpy.ndarray`` on the CPU.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import flat_bytes, landing
from reference_transports._listener import Listener
from reference_transports._wire import Channel, ReceiverEnd, SourceEnd, Spares, source_of, wait_for_input


@dataclass
class TransferMetadata(CommunicatorMetadata):
    """Names one transfer of one object, to both ends."""

    transfer_id: str = field(default_factory=lambda: uuid.uuid4().hex)


class TcpTransport(TensorTransportManager):
    """Sends and receives over TCP."""

    def __init__(self) -> None:
        self._listener = Listener(self, self._arrive)
        self._spares = Spares()
        self._lock = threading.Lock()
        """Guards what follows."""
        self._silent: set[SourceEnd] = set()
        """Connections to receivers that have not asked for anything yet, or have not been heard."""
        self._asking: dict[str, SourceEnd] = {}
        """Those whose send has not come yet, by the transfer that they ask for."""
        self._bells: set[int] = set()
        """For each send that waits a file to ring: something has changed."""
        self._busy: weakref.WeakSet[Channel] = weakref.WeakSet()
        # An abort may come before the send or recv that it is meant for starts. Ids are never used again, so keeping
        # the last few can do no harm to another transfer.
        self._aborted: deque[str] = deque(maxlen=256)

    def tensor_transport_backend(self) -> str:
        """The name to register."""
        return "TCP"

    @staticmethod
    def is_one_sided() -> bool:
        """False: the source calls send, the destination recv."""
        return False

    @staticmethod
    def can_abort_transport() -> bool:
        """True: shutting down its connection ends a transfer at once."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: it works wherever Ray does."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """Describe the tensors, and say where this process listens.

        Raises:
            ValueError: a tensor is not plain CPU memory. Nothing was set up.
        """
        return self._listener.metadata(rdt_object)

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> TransferMetadata:
        """A new id, by which the two ends of this one transfer find each other."""
        return TransferMetadata()

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Send the tensors to the receiver of this transfer, once it is there.

        Raises:
            ConnectionError: the receiver is gone, or the transfer was aborted.
        """
        buffers = [flat_bytes(tensor) for tensor in tensors]
        end = self._meet(_transfer_id(communicator_metadata))
        try:
            end.send(buffers)
        except BaseException:
            end.close()
            raise
        self._arrive(end)

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Receive into the target buffers if there are any, else into fresh tensors.

        Raises:
            ValueError: the metadata are not ours, or the buffers do not fit. Nothing was written.
            ConnectionError: the source is gone, or the transfer was aborted. Nothing will be written any more.
        """
        source = source_of(tensor_transport_metadata)
        with closing(ReceiverEnd(_transfer_id(communicator_metadata), source, self._spares)) as end:
            with self._lock:
                self._raise_if_aborted(end.key)
                self._busy.add(end)
            end.ask()
            tensors = landing(source.tensor_meta, target_buffers)
            end.receive(tensors)
        return tensors

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Nothing was registered. But receivers may have died, and their connections are of no more use."""
        with self._lock:
            self._silent = {end for end in self._silent if not end.receiver_is_gone()}
            self._asking = {key: end for key, end in self._asking.items() if not end.receiver_is_gone()}

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """End the send or recv of this transfer, whether it is in flight or still to come."""
        transfer_id = _transfer_id(communicator_metadata)
        with self._lock:
            self._aborted.append(transfer_id)
            self._asking.pop(transfer_id, None)
            for end in self._busy:
                if end.key == transfer_id:
                    end.abort()
            self._ring()

    def _arrive(self, end: SourceEnd) -> bool:
        """From now on a send may hear this receiver."""
        with self._lock:
            self._busy.discard(end)
            self._silent.add(end)
            self._ring()
        return False

    def _meet(self, transfer_id: str) -> SourceEnd:
        """Wait until the receiver of this transfer asks for it."""
        bell = os.eventfd(0)
        try:
            while True:
                with self._lock:
                    self._raise_if_aborted(transfer_id)
                    if transfer_id in self._asking:
                        end = self._asking.pop(transfer_id)
                        self._busy.add(end)
                        return end
                    self._bells.add(bell)
                    silent = {end.fileno(): end for end in self._silent}
                ready = wait_for_input([bell, *silent])
                if bell in ready:
                    os.eventfd_read(bell)
                self._hear([silent[number] for number in ready if number != bell])
        finally:
            with self._lock:
                self._bells.discard(bell)
            os.close(bell)

    def _hear(self, ends: list[SourceEnd]) -> None:
        """Learn what these receivers ask for."""
        with self._lock:
            for end in self._silent.intersection(ends):  # another send may have been faster
                self._silent.discard(end)
                with suppress(ConnectionError):  # it is gone
                    transfer_id = end.hear_request()
                    if not end.aborted and transfer_id not in self._aborted:
                        self._asking[transfer_id] = end
                        self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            os.eventfd_write(bell, 1)

    def _raise_if_aborted(self, transfer_id: str) -> None:
        if transfer_id in self._aborted:
            raise ConnectionAbortedError(f"transfer {transfer_id} was aborted")


def _transfer_id(metadata: CommunicatorMetadata) -> str:
    if not isinstance(metadata, TransferMetadata):
        raise ValueError(f"{type(metadata).__name__} does not come from this transport")
    return metadata.transfer_id
