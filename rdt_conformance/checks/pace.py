"""Keeps the checks of a run within their time, also where each of them takes long."""

from __future__ import annotations

_WHEN_LATE = 0.25
"""Which part of its time a check has then: every check still tries the least, and what is fast enough much more."""
_AHEAD = 6
"""What comes first may take longer than the average, by one part in so many of the whole time."""


class Pace:
    """How far a run has got on one engine, and in what time.

    Args:
        checks: how many there are.
        seconds: what all of them should take.
    """

    def __init__(self, checks: int, seconds: float) -> None:
        self._checks, self._seconds = checks, seconds
        self._done = 0
        self._spent = 0.0

    def took(self, seconds: float) -> None:
        """One more check has run."""
        self._done += 1
        self._spent += seconds

    def share(self) -> float:
        """The part of its usual time that the next check has."""
        due = self._seconds * (self._done / self._checks + 1 / _AHEAD)
        return _WHEN_LATE if self._spent > due else 1.0
