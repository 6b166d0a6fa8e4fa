"""In how large pieces an object is read."""

from __future__ import annotations

from collections import defaultdict

_FIRST_PIECE, _LARGEST_PIECE = 16 << 20, 512 << 20
"""Bytes. Where a GPU reads another one's memory, more would take milliseconds; but it may be slower another time, and
then whoever ends a transfer waits for what is on its way."""
_SECONDS_OF_A_PIECE = 0.02
"""A large object comes in pieces, between which an abort takes effect. They grow until each takes about so long."""


class Pace:
    """How large the pieces are, learnt from one object for the next: each piece costs as much as a small read."""

    def __init__(self) -> None:
        self.piece = _FIRST_PIECE

    def count(self, nbytes: int, seconds: float) -> None:
        """Learn from a piece that has come; it may have shared the way with another."""
        if nbytes == self.piece and seconds < _SECONDS_OF_A_PIECE:
            self.piece = min(2 * self.piece, _LARGEST_PIECE)
        elif seconds > 4 * _SECONDS_OF_A_PIECE:
            self.piece = max(self.piece // 2, _FIRST_PIECE)


class Paces:
    """Those of one peer: another may be far away."""

    def __init__(self) -> None:
        self._of: defaultdict[tuple[str | None, str], Pace] = defaultdict(Pace)

    def of(self, source: str | None, destination: str) -> Pace:
        """That of reads from one type of device to another."""
        return self._of[source, destination]
