"""A two-sided transport through torch.distributed's gloo backend, with process groups and tags of its own.

Source and destination form a process group of two, apart from the default group and from the collective groups of Ray:
to have any of those, or none, makes no difference. It is built for the first transfer between the two, at both ends of
a connection that the destination makes to the source, and kept for later ones.

Gloo cannot abort, but the connection within a group can be closed, which ends at once what goes on there, on both
sides. That is what an abort does. Both then drop the group, and build another when there is something to transfer. A
transfer that was not meant, and lost its group all the same, starts over. How, and how a group is built, is in
`_gloo_pair`; how the two find each other, in `_wire`.

What gloo itself sends is neither proved nor encrypted: that is for the network to do. Linux; ``torch.Tensor`` and
``numpy.ndarray`` on the CPU.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._gloo_pair import DESTINATION, SOURCE, Device, PairGroup
from reference_transports._layout import describe, flat_bytes, landing
from reference_transports._listener import Listener, own_address
from reference_transports._wire import Channel, ReceiverEnd, SourceEnd, Spares, source_of

MOST_GROUPS = 64
"""How many groups a process keeps, apart from those in use."""
_SMALL = 1 << 16
"""Tensors of fewer bytes travel together, in one message."""
_EXIT_SECONDS = 5.0
_ALL = "all transfers"
"""Takes the place of an id of a transfer."""


@dataclass
class TransferMetadata(CommunicatorMetadata):
    """Names one transfer, and the two actors that it is between, to both ends."""

    pair: str = ""
    transfer_id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, eq=False)
class _Half:
    """One side of a transfer.

    Args:
        transfer_id: of the transfer.
        key: what its group is for: the pair, and at the destination also the secret of the source.
        build: makes such a group.
        move: sends or receives in it.
    """

    transfer_id: str
    key: tuple[bytes, str]
    build: Callable[[_Half], PairGroup]
    move: Callable[[PairGroup], None]


class GlooTransport(TensorTransportManager):
    """Sends and receives through gloo."""

    def __init__(self) -> None:
        self._listener = Listener(self, self._arrive)
        # Owners build the transport too, and never transfer: this comes when it is needed.
        self._device: Device | None = None
        self._changed = threading.Condition()
        """Guards all that is here, and tells of arrivals and aborts, and of what has ended."""
        self._arrived: dict[str, SourceEnd] = {}
        """Destinations that ask for a group, by the pair."""
        self._groups: dict[tuple[bytes, str], PairGroup] = {}
        """Oldest first."""
        self._building: set[tuple[bytes, str]] = set()
        self._under_way: dict[_Half, Channel | PairGroup | None] = {}
        """What is to be sent or received, and what it waits in just now."""
        # An abort may come before the send or recv that it is meant for starts. Ids are never used again, so keeping
        # the last few can do no harm to another transfer.
        self._aborted: deque[str] = deque(maxlen=256)
        weakref.finalize(self, _end_all, self._changed, self._under_way, self._aborted)

    def tensor_transport_backend(self) -> str:
        """The name to register; GLOO is that of Ray's own."""
        return "GLOO_REFERENCE"

    @staticmethod
    def is_one_sided() -> bool:
        """False: the source calls send, the destination recv."""
        return False

    @staticmethod
    def can_abort_transport() -> bool:
        """True: closing the group of the pair ends a transfer at once, and the next one gets another group."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: it works wherever Ray does, in a collective group or not."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """Describe the tensors, and say where this process listens.

        Raises:
            ValueError: a tensor is not plain CPU memory. Nothing was set up.
        """
        return self._listener.metadata(rdt_object)

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> TransferMetadata:
        """A new id, by which the two ends of this one transfer find each other, and the name of the pair."""
        ids = ("" if actor is None else actor._actor_id.hex() for actor in (src_actor, dst_actor))
        return TransferMetadata("-".join(ids))

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Send the tensors, once the receiver of this transfer is there, and return when it has them.

        Raises:
            ValueError: the metadata are not ours, or do not describe these tensors.
            ConnectionAbortedError: the transfer was aborted. Ray does that too when the receiver is gone.
        """
        source, transfer = source_of(tensor_transport_metadata), _transfer(communicator_metadata)
        if source.secret != self._listener.secret or list(source.tensor_meta) != describe(tensors):
            raise ValueError(f"transfer {transfer.transfer_id}: the metadata are not those of the tensors to send")
        views = [flat_bytes(tensor) for tensor in tensors]
        buffers, tag = _buffers(views, bytearray().join(_small(views))), _tag(transfer, views)

        def build(half: _Half) -> PairGroup:
            return self._build(half, self._meet(half), SOURCE)

        self._do(_Half(transfer.transfer_id, (b"", transfer.pair), build, lambda group: group.send(buffers, tag)))

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
        source, transfer = source_of(tensor_transport_metadata), _transfer(communicator_metadata)
        tensors = landing(source.tensor_meta, target_buffers)
        views = [flat_bytes(tensor) for tensor in tensors]
        packed = bytearray(sum(view.nbytes for view in _small(views)))
        buffers, tag = _buffers(views, packed), _tag(transfer, views)

        def build(half: _Half) -> PairGroup:
            return self._build(half, ReceiverEnd(transfer.pair, source, Spares()), DESTINATION)

        key = (source.secret, transfer.pair)
        self._do(_Half(transfer.transfer_id, key, build, lambda group: group.receive(buffers, tag)))
        rest = memoryview(packed)
        for view in _small(views):
            view[:], rest = rest[: view.nbytes], rest[view.nbytes :]
        return tensors

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Nothing is kept for an object. But a destination may have died while it waited for a send that never came."""
        with self._changed:
            self._forget_the_dead()

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """End the send or recv of this transfer, whether it is in flight or still to come."""
        transfer = _transfer(communicator_metadata)
        with self._changed:
            self._aborted.append(transfer.transfer_id)
            # Under the lock, so that the transfer cannot end meanwhile and leave its group to the next.
            for half, place in self._under_way.items():
                if half.transfer_id == transfer.transfer_id and place is not None:
                    place.abort()
            self._changed.notify_all()

    def _arrive(self, end: SourceEnd, pair: str) -> bool:
        """A destination asks for a group; an earlier one of the same pair has given up."""
        with self._changed:
            self._forget_the_dead()
            if pair in self._arrived:
                self._arrived[pair].close()
            end.key = pair
            self._arrived[pair] = end
            self._changed.notify_all()
        return False

    def _forget_the_dead(self) -> None:
        for pair in [pair for pair, end in self._arrived.items() if end.receiver_is_gone()]:
            self._arrived.pop(pair).close()

    def _do(self, half: _Half) -> None:
        """Do one side of a transfer, again if its group was closed and the transfer was not aborted."""
        with self._changed:
            if self._device is None:
                self._device = dist.ProcessGroupGloo.create_device(hostname=own_address())
            self._under_way[half] = None
        try:
            while not self._attempt(half):
                pass
        finally:
            with self._changed:
                del self._under_way[half]
                self._changed.notify_all()

    def _attempt(self, half: _Half) -> bool:
        """Whether it was done. If it was not, nothing is written any more."""
        try:
            group = self._group(half)
        except RuntimeError:
            return False
        self._enter(half, group)
        try:
            half.move(group)
        except BaseException as error:
            group.abort()
            self._drop(half.key, group)
            if isinstance(error, RuntimeError):
                return False
            raise
        return True

    def _group(self, half: _Half) -> PairGroup:
        """The group that there is, or a new one."""
        with self._changed:
            self._wait(half, lambda: half.key not in self._building)
            if half.key in self._groups:
                return self._groups[half.key]
            self._building.add(half.key)
        try:
            group = half.build(half)
            with self._changed:
                self._make_room()
                self._groups[half.key] = group
            return group
        finally:
            with self._changed:
                self._building.discard(half.key)
                self._changed.notify_all()

    def _build(self, half: _Half, end: SourceEnd | ReceiverEnd, rank: int) -> PairGroup:
        """Build a group together with who is at the other end.

        Raises:
            ConnectionError: the source cannot be reached.
            RuntimeError: it came to nothing for another reason.
        """
        with closing(end):
            self._enter(half, end)
            if isinstance(end, ReceiverEnd):
                end.ask()
            assert self._device is not None
            return PairGroup(end, rank, self._device)

    def _meet(self, half: _Half) -> SourceEnd:
        """The end of the destination of this pair, once it is there."""
        with self._changed:
            self._wait(half, lambda: half.key[1] in self._arrived)
            return self._arrived.pop(half.key[1])

    def _enter(self, half: _Half, place: Channel | PairGroup) -> None:
        """Let `abort_transport` find what this half is about to wait in."""
        with self._changed:
            self._wait(half, lambda: True)
            self._under_way[half] = place

    def _wait(self, half: _Half, condition: Callable[[], bool]) -> None:
        """Wait for something that is told, unless the transfer is aborted; with the lock held."""

        def aborted() -> bool:
            return half.transfer_id in self._aborted or _ALL in self._aborted

        self._changed.wait_for(lambda: aborted() or condition())
        if aborted():
            raise ConnectionAbortedError(f"transfer {half.transfer_id} was aborted")

    def _make_room(self) -> None:
        used = set(self._under_way.values())
        idle = [key for key, group in self._groups.items() if group not in used]
        for key in idle[: max(0, len(idle) + 1 - MOST_GROUPS)]:
            del self._groups[key]

    def _drop(self, key: tuple[bytes, str], group: PairGroup) -> None:
        with self._changed:
            if self._groups.get(key) is group:
                del self._groups[key]


def _end_all(
    changed: threading.Condition, under_way: dict[_Half, Channel | PairGroup | None], aborted: deque[str]
) -> None:
    """End all transfers of a process that is about to exit: torch would crash it if they still waited then."""
    with changed:
        aborted.append(_ALL)
        for place in under_way.values():
            if place is not None:
                place.abort()
        changed.notify_all()
        changed.wait_for(lambda: not under_way, timeout=_EXIT_SECONDS)


def _transfer(metadata: CommunicatorMetadata) -> TransferMetadata:
    if not isinstance(metadata, TransferMetadata):
        raise ValueError(f"{type(metadata).__name__} does not come from this transport")
    return metadata


def _tag(transfer: TransferMetadata, views: Sequence[memoryview]) -> int:
    """A tag for this transfer with these sizes, after which two more are free.

    Gloo ends the whole process if a message is too large for its buffer. So messages of other sizes must never meet.
    """
    text = f"{transfer.transfer_id} {[view.nbytes for view in views]}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 3 << 2


def _small(views: Sequence[memoryview]) -> list[memoryview]:
    return [view for view in views if view.nbytes < _SMALL]


def _buffers(views: Sequence[memoryview], packed: bytearray) -> list[torch.Tensor]:
    """What becomes a message each: every large tensor, in place, and all small ones together."""
    pieces = [view for view in views if view.nbytes >= _SMALL]
    if packed:
        pieces.append(memoryview(packed))
    # torch does not like to lend memory that is not writable.
    return [torch.frombuffer(bytearray(each) if each.readonly else each, dtype=torch.uint8) for each in pieces]
