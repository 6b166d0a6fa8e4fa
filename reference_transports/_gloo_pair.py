"""What the gloo transport is built on: process groups of two that can be aborted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from reference_transports._pairs import SOURCE, GroupLost
from reference_transports._wire import Channel

Device: TypeAlias = dist.ProcessGroupGloo.Device

_CONNECTING = timedelta(seconds=0.5)
"""How long gloo may take to connect the two when both are there: the one wait that cannot be aborted. It tries for five
times as long before it gives up."""
_FOREVER = timedelta(days=365)
"""How long gloo waits for a message. It is Ray that gives up, and aborts."""
_NEVER_SENT = 3
"""A tag; all others leave a remainder of 0, 1 or 2 when divided by 4."""
_NOTHING = torch.empty(0, dtype=torch.uint8)


class _Exchange(dist.Store):  # pyright: ignore[reportPrivateImportUsage]
    """The store by which a group is built: what one side sets goes to the other over their channel.

    Unlike the stores of torch, it serves nobody else, ends when the other side does or an abort comes, and is gone
    with the channel.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._values[key] = value
        self._channel.say(value)

    def get(self, key: str) -> bytes:
        if key not in self._values:
            self._values[key] = self._channel.hear()
        return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Leave it to `get`, which follows."""


class PairGroup:
    """A process group of one source and one destination, each of which builds it at its end of a channel.

    A destination can be there long before its source is ready to build. So the source says when.

    What fails is a GroupLost.

    Args:
        channel: is closed when the group is built, or cannot be.
        rank: which of the two this is.
        device: gloo's own thread and listening socket.
    """

    def __init__(self, channel: Channel, rank: int, device: Device) -> None:
        options: Any = dist.ProcessGroupGloo._Options()  # pyright: ignore[reportAttributeAccessIssue]
        options._devices = [device]
        options._threads = 0  # those are for collective operations
        options._timeout = _CONNECTING
        self._peer = 1 - rank
        with closing(channel), _losing():
            if rank == SOURCE:
                channel.say(b"")
            else:
                channel.hear()
            self._group: Any = dist.ProcessGroupGloo(_Exchange(channel), rank, 2, options)

    # Behind its data, a transfer has two messages without contents: by one the destination learns that the data are
    # complete, by the other the source that they have arrived. Each side waits for nothing else. For when a connection
    # breaks, gloo ends the wait for a message that has not begun; one that has, as data may have, it leaves waiting.

    def send(self, buffers: Sequence[torch.Tensor], tag: int) -> None:
        """Send what is in the buffers. It has arrived when this returns."""
        with _losing():
            arrived = self._group.recv([_NOTHING], self._peer, tag + 2)
            under_way = [self._group.send([buffer], self._peer, tag) for buffer in buffers]
            under_way.append(self._group.send([_NOTHING], self._peer, tag + 1))
            arrived.wait(_FOREVER)

    def receive(self, buffers: Sequence[torch.Tensor], tag: int) -> None:
        """Fill the buffers, and tell the source."""
        with _losing():
            under_way = [self._group.recv([buffer], self._peer, tag) for buffer in buffers]
            self._group.recv([_NOTHING], self._peer, tag + 1).wait(_FOREVER)
            under_way.clear()
            self._group.send([_NOTHING], self._peer, tag + 2).wait(_FOREVER)

    def abort(self) -> None:
        """End whatever waits in the group, on any thread and on either side. Harmless when repeated.

        A wait that times out makes gloo close the connection. This one is for a message that nobody sends.
        """
        with suppress(RuntimeError):
            self._group.recv([_NOTHING], self._peer, _NEVER_SENT).wait(timedelta(milliseconds=1))

    def other_side_is_gone(self) -> bool:
        """Never: what is left of a group when gloo has closed the connection to the dead is next to nothing."""
        return False


@contextmanager
def _losing() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ConnectionError) as error:  # RuntimeError as everywhere in torch.distributed
        raise GroupLost(str(error)) from error
