"""What the two-sided transports share that keep a group for each source and destination: `PairTransport`.

A group is whatever the two have built for their transfers: a process group, a communicator. It is made for the first
transfer between the two, at both ends of a connection that the destination makes to the source, and kept for later
ones. An abort ends the group, on both sides. Both then drop it, and make another when there is something to transfer. A
transfer that was not meant, and lost its group all the same, starts over.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from reference_transports._listener import Listener
from reference_transports._wire import Channel, ReceiverEnd, SourceEnd, SourceMetadata, Spares

SOURCE, DESTINATION = 0, 1
"""The two ranks of a group."""
_EXIT_SECONDS = 5.0
_ALL = "all transfers"
"""Takes the place of an id of a transfer."""

Key: TypeAlias = tuple[bytes, str]
"""What a group is for: the secret of the source, and the name of the pair. At the source, without the secret."""


@dataclass
class TransferMetadata(CommunicatorMetadata):
    """Names one transfer, and the two actors that it is between, to both ends."""

    pair: str = ""
    transfer_id: str = field(default_factory=lambda: uuid.uuid4().hex)


class GroupLost(Exception):
    """The group is of no use any more. Nothing is written by what went on there."""


class Group(Protocol):
    """What the two sides of a pair have in common."""

    def abort(self) -> None:
        """End whatever goes on in the group, on any thread and on either side. Returns soon; harmless at any time."""
        ...

    def other_side_is_gone(self) -> bool:
        """Whether it has given up the group, or died, and the group takes something for as long as it is kept."""
        ...


@dataclass(frozen=True, eq=False)
class Half:
    """One side of a transfer.

    Args:
        transfer_id: of the transfer.
        pair: the name of the pair.
        source: who sends, at the destination; None at the source.
        join: makes the group at one end of a connection, which is then its to close, as one of two ranks.
        move: sends or receives in it.

    The last two raise GroupLost if it is worth another attempt.
    """

    transfer_id: str
    pair: str
    source: SourceMetadata | None
    join: Callable[[Channel, int], Group]
    move: Callable[[Any], None]

    @property
    def key(self) -> Key:
        """Of its group."""
        return (self.source.secret if self.source else b"", self.pair)


class PairTransport(TensorTransportManager):
    """Transfers within groups of two. A transport calls `_transfer` for its part of each."""

    MOST_GROUPS: ClassVar[int] = 64
    """How many groups a process keeps, apart from those in use."""

    def __init__(self) -> None:
        self._listener = Listener(self, self._arrive)
        self._changed = threading.Condition()
        """Guards all that is here, and tells of arrivals and aborts, and of what has ended."""
        self._arrived: dict[str, SourceEnd] = {}
        """Destinations that ask for a group, by the pair."""
        self._groups: dict[Key, Group] = {}
        """Oldest first."""
        self._building: set[Key] = set()
        self._under_way: dict[Half, Channel | Group | None] = {}
        """What is to be sent or received, and what it waits in just now."""
        # An abort may come before the send or recv that it is meant for starts. Ids are never used again, so keeping
        # the last few can do no harm to another transfer.
        self._aborted: deque[str] = deque(maxlen=256)
        weakref.finalize(self, _end_all, self._changed, self._under_way, self._aborted)

    @staticmethod
    def is_one_sided() -> bool:
        """False: the source calls send, the destination recv."""
        return False

    @staticmethod
    def can_abort_transport() -> bool:
        """True: ending the group of the pair ends a transfer at once, and the next one gets another group."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: it works wherever Ray does, in a collective group or not."""
        return True

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> TransferMetadata:
        """A new id, by which the two ends of this one transfer find each other, and the name of the pair."""
        ids = ("" if actor is None else actor._actor_id.hex() for actor in (src_actor, dst_actor))
        return TransferMetadata("-".join(ids))

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Nothing is kept for an object. But who was to send or receive others, or did so earlier, may have died."""
        with self._changed:
            lost = self._forget_the_dead()
        _end_aside(lost)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """End the send or recv of this transfer, whether it is in flight or still to come."""
        transfer = transfer_of(communicator_metadata)
        with self._changed:
            self._aborted.append(transfer.transfer_id)
            # Under the lock, so that the transfer cannot end meanwhile and leave its group to the next.
            for half, place in self._under_way.items():
                if half.transfer_id == transfer.transfer_id and place is not None:
                    place.abort()
            self._changed.notify_all()

    def _arrive(self, end: SourceEnd, pair: str) -> bool:
        """A destination asks for a group; an earlier one of the same pair, or its group, has been given up."""
        with self._changed:
            lost = self._forget_the_dead()
            if pair in self._arrived:
                self._arrived[pair].close()
            former = self._groups.pop((b"", pair), None)
            if former is not None:
                former.abort()
            end.key = pair
            self._arrived[pair] = end
            self._changed.notify_all()
        _end_aside(lost)
        return False

    def _forget_the_dead(self) -> list[Group]:
        """Send away destinations that have died, and drop the idle groups with those that have; they end with the list.

        Ray tells a transport of a death only by the transfers that it cuts off. So it is looked for whenever something
        is freed, which is so at sources, or a group is made, which is so at both ends.
        """
        for pair in [pair for pair, end in self._arrived.items() if end.receiver_is_gone()]:
            self._arrived.pop(pair).close()
        return [self._groups.pop(key) for key in self._idle() if self._groups[key].other_side_is_gone()]

    def _transfer(self, half: Half) -> None:
        """Do one side of a transfer, again if its group was lost and the transfer was not aborted.

        Raises:
            ConnectionError: the source is gone, or the transfer was aborted.
        """
        with self._changed:
            self._under_way[half] = None
        try:
            while not self._attempt(half):
                pass
        finally:
            with self._changed:
                del self._under_way[half]
                self._changed.notify_all()

    def _attempt(self, half: Half) -> bool:
        """Whether it was done. If it was not, nothing is written any more."""
        try:
            group = self._group(half)
        except GroupLost:
            return False
        self._enter(half, group)
        try:
            half.move(group)
        except BaseException as error:
            group.abort()
            self._drop(half.key, group)
            if isinstance(error, GroupLost):
                return False
            raise
        return True

    def _group(self, half: Half) -> Group:
        """The group that there is, or a new one."""
        with self._changed:
            self._wait(half, lambda: half.key not in self._building)
            if half.key in self._groups:
                return self._groups[half.key]
            self._building.add(half.key)
        try:
            group = self._build(half)
            with self._changed:
                lost = self._forget_the_dead()
                evicted = self._make_room()
                self._groups[half.key] = group
            _end_aside(lost)
            evicted.clear()  # without the lock, since to end one may take a while
            return group
        finally:
            with self._changed:
                self._building.discard(half.key)
                self._changed.notify_all()

    def _build(self, half: Half) -> Group:
        """Make a group together with who is at the other end.

        Raises:
            ConnectionError: the source cannot be reached.
            GroupLost: it came to nothing for another reason.
        """
        end = self._meet(half) if half.source is None else ReceiverEnd(half.pair, half.source, Spares())
        try:
            self._enter(half, end)
            if isinstance(end, ReceiverEnd):
                end.ask()
            return half.join(end, SOURCE if half.source is None else DESTINATION)
        except BaseException:
            end.close()
            raise

    def _meet(self, half: Half) -> SourceEnd:
        """The end of the destination of this pair, once it is there."""
        with self._changed:
            self._wait(half, lambda: half.pair in self._arrived)
            return self._arrived.pop(half.pair)

    def _enter(self, half: Half, place: Channel | Group) -> None:
        """Let `abort_transport` find what this half is about to wait in."""
        with self._changed:
            self._wait(half, lambda: True)
            self._under_way[half] = place

    def _wait(self, half: Half, condition: Callable[[], bool]) -> None:
        """Wait for something that is told, unless the transfer is aborted; with the lock held."""

        def aborted() -> bool:
            return half.transfer_id in self._aborted or _ALL in self._aborted

        self._changed.wait_for(lambda: aborted() or condition())
        if aborted():
            raise ConnectionAbortedError(f"transfer {half.transfer_id} was aborted")

    def _make_room(self) -> list[Group]:
        """Groups that are kept no longer."""
        idle = self._idle()
        return [self._groups.pop(key) for key in idle[: max(0, len(idle) + 1 - self.MOST_GROUPS)]]

    def _idle(self) -> list[Key]:
        """Of the groups in which nothing goes on, oldest first."""
        used = set(self._under_way.values())
        return [key for key, group in self._groups.items() if group not in used]

    def _drop(self, key: Key, group: Group) -> None:
        with self._changed:
            if self._groups.get(key) is group:
                del self._groups[key]


def _end_aside(groups: list[Group]) -> None:
    """End groups that nobody uses, on a thread of its own: it may take half a second each, and nobody is to wait."""
    if groups:
        threading.Thread(target=groups.clear, name="rdt-pairs", daemon=True).start()


def _end_all(changed: threading.Condition, under_way: dict[Half, Any], aborted: deque[str]) -> None:
    """End all transfers of a process that is about to exit: torch would crash it if they still waited then."""
    with changed:
        aborted.append(_ALL)
        for place in under_way.values():
            if place is not None:
                place.abort()
        changed.notify_all()
        changed.wait_for(lambda: not under_way, timeout=_EXIT_SECONDS)


def transfer_of(metadata: CommunicatorMetadata) -> TransferMetadata:
    """The metadata, as what they must be.

    Raises:
        ValueError: they come from another transport.
    """
    if not isinstance(metadata, TransferMetadata):
        raise ValueError(f"{type(metadata).__name__} does not come from this transport")
    return metadata


def digest_of(transfer: TransferMetadata, sizes: Sequence[int]) -> bytes:
    """Something that only this transfer has, with tensors of these sizes."""
    return hashlib.blake2b(f"{transfer.transfer_id} {sizes}".encode(), digest_size=16).digest()
