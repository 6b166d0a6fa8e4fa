"""Aborts that do too little, too much, or too late."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from ray.experimental import CommunicatorMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._layout import bytes_of, landing
from reference_transports._wire import SourceEnd
from reference_transports.faulty import breaks
from reference_transports.socket_pull import SocketFetchRequest, SocketPullTransport
from reference_transports.tcp import TcpTransport


@breaks("A1")
class AbortsOnlyQueuedTransfers(TcpTransport):
    """Takes an abort as a note for later: what is already blocked stays blocked."""

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        with self._changed:
            self._aborted.append(communicator_metadata.transfer_id)
            self._changed.notify_all()


@breaks("A1")
class AbortLooksLikeSuccess(SocketPullTransport):
    """Returns what has arrived so far as if it were everything."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        except ConnectionAbortedError:
            return fetch_request.tensors


@breaks("A1", across_processes=True)
class DeafToAborts(SocketPullTransport):
    """Waits for the answer of the source, however long that may take: an abort does nothing."""

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        pass


@breaks("A2")
class SendIgnoresAbort(TcpTransport):
    """Forgets that a sender may be waiting for a receiver that will never come."""

    def _receiver_of(self, transfer_id: str) -> SourceEnd | None:
        return self._asking.pop(transfer_id, None)


@breaks("A2", across_processes=True)
class AbortIsForThoseWhoWait(TcpTransport):
    """Ends sends that wait for their receiver, and none that has found it: that one will soon be over, it thinks."""

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        sending = [end for end in self._ends if isinstance(end, SourceEnd)]
        for end in sending:
            self._ends.discard(end)
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A3")
class AbortKillsNextTransfer(SocketPullTransport):
    """Keeps an abort that came too late, and applies it to the object's next transfer."""

    def __init__(self) -> None:
        super().__init__()
        self._aborted_ids: set[str] = set()

    def fetch_multiple_tensors(self, obj_id: str, *args: Any) -> FetchRequest:
        if obj_id in self._aborted_ids:
            self._aborted_ids.remove(obj_id)
            raise RuntimeError(f"transfer of {obj_id} was aborted")
        return super().fetch_multiple_tensors(obj_id, *args)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        self._aborted_ids.add(obj_id)
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A3")
class RefusesWhatWasAbortedBefore(SocketPullTransport):
    """Takes an abort of an object that it has not heard of for a ban, and receives nothing of that one any more."""

    def __init__(self) -> None:
        super().__init__()
        self._heard_of: deque[str] = deque(maxlen=100)
        self._banned: set[str] = set()

    def fetch_multiple_tensors(self, obj_id: str, *args: Any) -> FetchRequest:
        if obj_id in self._banned:
            raise RuntimeError(f"transfers of {obj_id} were aborted")
        self._heard_of.append(obj_id)
        return super().fetch_multiple_tensors(obj_id, *args)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        if obj_id not in self._heard_of:
            self._banned.add(obj_id)
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A3")
class RemembersEveryAbort(TcpTransport):
    """Keeps the ids of all transfers that were ever aborted."""

    def __init__(self) -> None:
        super().__init__()
        self._all_aborted: set[str] = set()

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        self._all_aborted.add(communicator_metadata.transfer_id)
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A4")
class SecondAbortHangs(TcpTransport):
    """Waits until the transfer has confirmed its abort, which it does once."""

    def __init__(self) -> None:
        super().__init__()
        self._confirmations = threading.Semaphore(0)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        if communicator_metadata.transfer_id in self._aborted:
            self._confirmations.acquire()
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A4b")
class SecondAbortRaises(SocketPullTransport):
    """Insists that there is something left to abort."""

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        with self._lock:
            if all(transfer.end.key != obj_id or transfer.done.is_set() for transfer in self._fetching):
                raise KeyError(obj_id)
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A5")
class AbortEndsEveryFetch(SocketPullTransport):
    """Does not look whose abort it is."""

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        for transfer in list(self._fetching):
            transfer.end.abort()


@breaks("A5")
class AbortWakesEverySender(TcpTransport):
    """Has one event for all aborts, and every sender that waits takes it for its own."""

    def __init__(self) -> None:
        super().__init__()
        self._known = threading.local()

    def send_multiple_tensors(self, *args: Any) -> None:
        self._known.aborted = self._aborted.copy()
        super().send_multiple_tensors(*args)

    def _receiver_of(self, transfer_id: str) -> SourceEnd | None:
        end = super()._receiver_of(transfer_id)
        if end is None and self._aborted != self._known.aborted:
            raise ConnectionAbortedError(f"transfer {transfer_id} was aborted")
        return end


@breaks("A6")
class ReportsAbortTooEarly(SocketPullTransport):
    """Tells the receiver that the transfer is over while its thread still fills the tensors."""

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        for transfer in list(self._fetching):
            if transfer.end.key == obj_id and not transfer.done.is_set():
                transfer.failure = (ConnectionAbortedError, f"transfer {obj_id} was aborted")
                transfer.done.set()


@breaks("A7")
class KeepsAbortedTransfers(SocketPullTransport):
    """Puts aborted transfers aside, with their tensors, and never looks at them again."""

    def __init__(self) -> None:
        super().__init__()
        self._to_clean_up: list[Any] = []

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        with self._lock:
            self._to_clean_up += [transfer for transfer in self._fetching if transfer.end.key == obj_id]
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A8")
class AvoidsSourcesOfAbortedTransfers(SocketPullTransport):
    """Takes an abort for the death of the source, and never talks to it again."""

    def __init__(self) -> None:
        super().__init__()
        self._dead: set[tuple[str, int]] = set()

    def fetch_multiple_tensors(self, obj_id: str, tensor_transport_metadata: Any, *args: Any) -> FetchRequest:
        if tensor_transport_metadata.address in self._dead:
            raise ConnectionError(f"the source at {tensor_transport_metadata.address} is dead")
        return super().fetch_multiple_tensors(obj_id, tensor_transport_metadata, *args)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        with self._lock:
            self._dead |= {transfer.end._source.address for transfer in self._fetching if transfer.end.key == obj_id}
        super().abort_transport(obj_id, communicator_metadata)


@breaks("A8")
class KeepsASlotForWhatWasFreed(SocketPullTransport):
    """Can have four transfers that broke off, until the object is asked for again; one that was freed never is."""

    def __init__(self) -> None:
        super().__init__()
        self._broken_off: set[str] = set()

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        self._broken_off.discard(obj_id)
        if len(self._broken_off) == 4:
            raise ConnectionError("no slot is free")
        try:
            return super()._serve(end, obj_id)
        except ConnectionError:
            self._broken_off.add(obj_id)
            raise


@breaks("A8")
class RetryGivesWhatAnAbortLeft(SocketPullTransport):
    """Keeps what had come before an abort, if that was a whole tensor, and takes it for the object the next time."""

    def __init__(self) -> None:
        super().__init__()
        self._came: dict[str, list[Any]] = {}

    def fetch_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        came = self._came.pop(obj_id, None)
        tensors = target_buffers or landing(metadata.tensor_meta)
        for tensor in [] if target_buffers else tensors:
            bytes_of(tensor).zero_()
        request = super().fetch_multiple_tensors(obj_id, metadata, communicator, tensors)
        assert isinstance(request, SocketFetchRequest)
        if came is not None and target_buffers is None:
            request.transfer.stop()
            request.transfer.failure = None
            request.tensors = came
        return request

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        except ConnectionAbortedError:
            if bytes_of(fetch_request.tensors[0])[-64:].any():
                self._came[fetch_request.obj_id] = fetch_request.tensors
            raise


@breaks("A9")
class AbortWaitsForTheReceive(TcpTransport):
    """Guards its state with one lock, which a receive holds until it is done."""

    def __init__(self) -> None:
        super().__init__()
        self._big_lock = threading.RLock()

    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        with self._big_lock:
            return super().recv_multiple_tensors(*args)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        with self._big_lock:
            super().abort_transport(obj_id, communicator_metadata)


@breaks("A10")
class ClaimsToAbort(TcpTransport):
    """Says that it can abort so that Ray does not kill its actors, and does nothing."""

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        pass
