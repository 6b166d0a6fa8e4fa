"""A two-sided transport over TCP: both ends take part, and either can abort.

Ray calls `send_multiple_tensors` on the source and `recv_multiple_tensors` on the destination, in no certain order.
They meet by the transfer's own id, which the owner draws in `get_communicator_metadata`: any number of transfers
between the same two actors, of the same or of several objects, stay apart. Each has a connection of its own while it
lasts, so the two directions, and transfers that wait for a slow receiver, do not hinder each other. The bytes go from
tensor memory to tensor memory through the two sockets, with no copy in between. How the sockets are used is in `_wire`.

One connection carries all bytes of a transfer: on one host, several are no faster as long as the processor does all
the copying.

Linux; ``torch.Tensor`` and ``numpy.ndarray`` on the CPU.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import deque
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import flat_bytes, landing
from reference_transports._listener import Listener
from reference_transports._wire import Channel, ReceiverEnd, SourceEnd, Spares, source_of


@dataclass
class TransferMetadata(CommunicatorMetadata):
    """Names one transfer of one object, to both ends."""

    transfer_id: str = field(default_factory=lambda: uuid.uuid4().hex)


class TcpTransport(TensorTransportManager):
    """Sends and receives over TCP."""

    def __init__(self) -> None:
        self._listener = Listener(self, self._serve)
        self._spares = Spares()
        self._changed = threading.Condition()
        """Guards what follows, and tells sends of a receiver that asks and of an abort."""
        # An end that is closed vanishes from the next two by itself.
        self._asking: weakref.WeakValueDictionary[str, SourceEnd] = weakref.WeakValueDictionary()
        """Receivers whose send has not come yet, by the transfer that they ask for."""
        self._ends: weakref.WeakSet[Channel] = weakref.WeakSet()
        """All that have been used for a transfer, and may be still."""
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
        transfer_id = _transfer_id(communicator_metadata)
        with self._changed:
            end = self._changed.wait_for(lambda: self._receiver_of(transfer_id))
        assert end is not None
        end.send(buffers)

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
            with self._changed:
                self._raise_if_aborted(end.key)
                self._ends.add(end)
            end.ask()
            tensors = landing(source.tensor_meta, target_buffers)
            end.receive(tensors)
        return tensors

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Nothing: nothing was registered."""

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """End the send or recv of this transfer, whether it is in flight or still to come."""
        transfer_id = _transfer_id(communicator_metadata)
        with self._changed:
            self._aborted.append(transfer_id)
            for end in self._ends:
                if end.key == transfer_id:
                    end.abort()
            self._changed.notify_all()

    def _serve(self, end: SourceEnd, transfer_id: str) -> bool:
        """A receiver asks, before or after its send has come."""
        with self._changed:
            self._raise_if_aborted(transfer_id)
            if end.aborted:  # by an abort of the transfer before that came late: the receiver will ask on another
                raise ConnectionAbortedError
            end.key = transfer_id
            self._ends.add(end)
            self._asking[transfer_id] = end
            self._changed.notify_all()
        return True

    def _receiver_of(self, transfer_id: str) -> SourceEnd | None:
        self._raise_if_aborted(transfer_id)
        return self._asking.pop(transfer_id, None)

    def _raise_if_aborted(self, transfer_id: str) -> None:
        if transfer_id in self._aborted:
            raise ConnectionAbortedError(f"transfer {transfer_id} was aborted")


def _transfer_id(metadata: CommunicatorMetadata) -> str:
    if not isinstance(metadata, TransferMetadata):
        raise ValueError(f"{type(metadata).__name__} does not come from this transport")
    return metadata.transfer_id
