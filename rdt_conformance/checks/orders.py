"""In which order threads go on: orders to draw, which become simple when an example is made small.

Most mistakes need no more than two switches, at the right places (Musuvathi and Qadeer, "Iterative context bounding",
PLDI 2007). So most orders are the plain one, each job to its end before the next, but for a few switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hypothesis import strategies as st

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.schedule import Order, Stop

_PLACES = st.integers(1, 4).flatmap(lambda bits: st.integers(1, 1 << bits))
"""Before which call a switch may come, early rather than late: how many there are is not known before."""

_MOST = 11
"""More lanes than this hardly ever wait for their turn at once."""


class Switches(Order):
    """Older jobs first, but a lane at which there is a switch comes after all others from then on.

    Args:
        calls: the numbers of the calls before which there is a switch, in the order in which they begin.
    """

    def __init__(self, calls: frozenset[int] = frozenset()) -> None:
        self._calls = calls
        self._begun = 0
        self._behind: list[tuple[str, Lane]] = []

    def __repr__(self) -> str:
        switches = " and ".join(f"before call {number}" for number in sorted(self._calls))
        return f"as submitted, but switches {switches}" if switches else "as submitted"

    def choose(self, stops: Sequence[Stop]) -> Stop:  # noqa: D102
        self._begun += 1
        chosen = self._first(stops)
        if self._begun in self._calls:
            self._behind = [lane for lane in self._behind if lane != _lane(chosen)] + [_lane(chosen)]
            chosen = self._first(stops)
        return chosen

    def _first(self, stops: Sequence[Stop]) -> Stop:
        return min(stops, key=lambda stop: self._behind.index(_lane(stop)) if _lane(stop) in self._behind else -1)


class AnyOrder(Order):
    """Whoever is drawn goes on."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def __repr__(self) -> str:
        return "any"

    def choose(self, stops: Sequence[Stop]) -> Stop:  # noqa: D102
        # Always of the same kind, as how many have come as far as this may depend on the machine.
        return stops[0] if len(stops) == 1 else stops[self._data.draw(st.integers(0, _MOST)) % len(stops)]


def orders(data: st.DataObject) -> st.SearchStrategy[Order]:
    """Orders for one example. `data`: where choices are drawn from that are made as the example goes."""
    return st.one_of(st.builds(Switches, st.frozensets(_PLACES, max_size=3)), st.builds(AnyOrder, st.just(data)))


class Interruption(Order):
    """The first job is interrupted once, and goes on when the others have come as far as they can.

    Args:
        tried: lines before which this has been done already; the one where it happens is added.
        share: of the lines of each file, only every `SHARES`-th, beginning with this one.
    """

    SHARES: ClassVar[int] = 4
    into_calls = True

    def __init__(self, tried: set[tuple[str, int]], share: int) -> None:
        self._tried = tried
        self._share = share
        self._first: tuple[str, Lane] | None = None
        self.happened = False

    def interrupts(self, process: str, lane: Lane, line: tuple[str, int]) -> bool:  # noqa: D102
        if self.happened or (process, lane) != self._first or line in self._tried:
            return False
        if line[1] % self.SHARES != self._share:
            return False
        self._tried.add(line)
        self.happened = True
        return True

    def choose(self, stops: Sequence[Stop]) -> Stop:  # noqa: D102
        self._first = self._first or _lane(stops[0])
        return min(stops, key=lambda stop: stop.inside)


def _lane(stop: Stop) -> tuple[str, Lane]:
    return stop.process, stop.lane
