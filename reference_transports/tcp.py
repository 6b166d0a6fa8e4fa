"""A two-sided transport over TCP: both ends take part, and either can abort.

Ray calls `send_multiple_tensors` on the source and `recv_multiple_tensors` on the destination, in no certain order.
They meet by the transfer's own id, which the owner draws in `get_communicator_metadata`: any number of transfers
between the same two actors, of the same or of several objects, stay apart. The bytes go from tensor memory to tensor
memory through the two sockets, with no copy in between. How the sockets are used is in `_wire`.

Linux; ``torch.Tensor`` and ``numpy.ndarray`` on the CPU.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import describe, landing
from reference_transports._wire import Channel, Listener, ReceiverEnd, SourceEnd, SourceMetadata, source_of


@dataclass
class TransferMetadata(CommunicatorMetadata):
    """Names one transfer of one object, to both ends."""

    transfer_id: str = field(default_factory=lambda: uuid.uuid4().hex)


class TcpTransport(TensorTransportManager):
    """Sends and receives over TCP."""

    def __init__(self) -> None:
        # Owners build the transport too, and never send: the listener is opened by the first extract.
        self._listener: Listener | None = None
        self._changed = threading.Condition()
        """Guards what follows, and tells senders of a receiver's arrival and of an abort."""
        self._arrived: dict[str, SourceEnd] = {}
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
        tensor_meta = describe(rdt_object)
        with self._changed:
            if self._listener is None:
                self._listener = Listener(self, self._arrive)
        return SourceMetadata(
            tensor_meta=tensor_meta,
            tensor_device="cpu" if rdt_object else None,
            address=self._listener.address,
            secret=self._listener.secret,
        )

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
        end = self._meet(_transfer_id(communicator_metadata))
        with self._abortable(end):
            end.send(tensors)

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
        tensors = landing(source.tensor_meta, target_buffers)
        end = ReceiverEnd(_transfer_id(communicator_metadata), source)
        with self._abortable(end):
            end.receive(tensors)
        return tensors

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Nothing was registered. But a receiver may have died here, while it waited for a send that never came."""
        with self._changed:
            self._forget_the_dead()

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """End the send or recv of this transfer, whether it is in flight or still to come."""
        transfer_id = _transfer_id(communicator_metadata)
        with self._changed:
            self._aborted.append(transfer_id)
            if transfer_id in self._arrived:
                self._arrived.pop(transfer_id).close()
            busy = [end for end in self._busy if end.key == transfer_id]
            self._changed.notify_all()
        for end in busy:
            end.abort()

    def _arrive(self, end: SourceEnd) -> None:
        """A receiver has connected, before or after its send has started."""
        with self._changed:
            self._forget_the_dead()
            if end.key in self._aborted or end.key in self._arrived:
                end.close()
            else:
                self._arrived[end.key] = end
                self._changed.notify_all()

    def _meet(self, transfer_id: str) -> SourceEnd:
        """Wait for the receiver of this transfer."""
        with self._changed:
            self._changed.wait_for(lambda: transfer_id in self._arrived or transfer_id in self._aborted)
            if transfer_id in self._arrived:
                return self._arrived.pop(transfer_id)
        raise ConnectionAbortedError(f"transfer {transfer_id} was aborted")

    @contextmanager
    def _abortable(self, end: Channel) -> Iterator[None]:
        """Let `abort_transport` find this end while it is in use, and close it afterwards."""
        with closing(end):
            with self._changed:
                if end.key in self._aborted:
                    raise ConnectionAbortedError(f"transfer {end.key} was aborted")
                self._busy.add(end)
            yield

    def _forget_the_dead(self) -> None:
        for transfer_id in [key for key, end in self._arrived.items() if end.receiver_is_gone()]:
            self._arrived.pop(transfer_id).close()


def _transfer_id(metadata: CommunicatorMetadata) -> str:
    if not isinstance(metadata, TransferMetadata):
        raise ValueError(f"{type(metadata).__name__} does not come from this transport")
    return metadata.transfer_id
