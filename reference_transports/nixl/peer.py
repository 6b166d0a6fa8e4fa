"""A connection to another agent, which may be lost while transfers use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reference_transports.nixl.pace import Paces

_MARKS = 1 << 14
"""Bits by which a process knows what it has told NIXL of a peer. Of a thousand sections thirty seem to be known and are
not, and so count for nothing."""


class ConnectionLost(ConnectionError):
    """A connection that has worked broke: by the peer's death, or by any one transfer that went wrong."""


class Peer:
    """A connection to another agent, or to this one.

    Args:
        name: under which NIXL knows the agent, for as long as this connection is used.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.paces = Paces()
        self.transfers = 0
        """How many are under way."""
        self.told_bytes = 0
        self.has_worked = False
        self.has_failed = False
        # A bit for each section that NIXL has been told, by its hash: no larger for many than for few.
        self._told = bytearray(_MARKS // 8)

    def count(self, section: bytes) -> None:
        """Count a section that NIXL has been told, the first time."""
        byte, bit = divmod(hash(section) % _MARKS, 8)
        if not self._told[byte] >> bit & 1:
            self._told[byte] |= 1 << bit
            self.told_bytes += len(section)

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Note that the connection has failed if the body does: nobody begins to use it any more.

        Raises:
            ConnectionLost: in place of the body's error, if it worked before.
        """
        try:
            yield
        except Exception as error:
            self.has_failed = True
            if self.has_worked:
                raise ConnectionLost(f"the connection was lost: {error}") from error
            raise
