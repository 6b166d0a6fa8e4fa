"""In which order threads go on: orders to draw, which become simple when an example is made small.

Most mistakes need no more than two switches, at the right places (Musuvathi and Qadeer, "Iterative context bounding",
PLDI 2007). So most orders are the plain one, each job to its end before the next, but for a few switches.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.schedule import Order, Stop

_PLACES = st.integers(2, 9).flatmap(lambda bits: st.integers(1, 1 << bits))
"""Where a switch may come, early rather than late: how many places there are is not known before."""


class Switches(Order):
    """Older jobs first, but a lane at which there is a switch comes after all others from then on.

    Args:
        calls: the numbers of the calls before which there is a switch, in the order in which they begin.
        lines: the numbers of the lines of the transport's code before which there is one.
    """

    def __init__(self, calls: frozenset[int] = frozenset(), lines: frozenset[int] = frozenset()) -> None:
        self._calls = calls
        self._lines = lines
        self._begun = 0
        self._behind: list[tuple[str, Lane]] = []
        self.into_calls = bool(lines)

    def __repr__(self) -> str:
        switches = [f"before call {number}" for number in sorted(self._calls)]
        switches += [f"before line {number}" for number in sorted(self._lines)]
        return "as submitted" + (f", but switches {' and '.join(switches)}" if switches else "")

    def interrupts(self, process: str, lane: Lane, line: int) -> bool:  # noqa: D102
        due = line in self._lines
        if due:
            self._put_behind(process, lane)
        return due

    def choose(self, stops: Sequence[Stop]) -> Stop:  # noqa: D102
        chosen = self._first(stops)
        if not chosen.inside:
            self._begun += 1
            if self._begun in self._calls:
                self._put_behind(chosen.process, chosen.lane)
                chosen = self._first(stops)
        return chosen

    def _first(self, stops: Sequence[Stop]) -> Stop:
        def place(stop: Stop) -> int:
            who = (stop.process, stop.lane)
            return self._behind.index(who) if who in self._behind else -1

        return min(stops, key=place)

    def _put_behind(self, process: str, lane: Lane) -> None:
        self._behind = [who for who in self._behind if who != (process, lane)] + [(process, lane)]


class AnyOrder(Order):
    """Whoever is drawn goes on."""

    into_calls = False

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def __repr__(self) -> str:
        return "any"

    def interrupts(self, process: str, lane: Lane, line: int) -> bool:  # noqa: D102
        return False

    def choose(self, stops: Sequence[Stop]) -> Stop:  # noqa: D102
        return stops[0] if len(stops) == 1 else self._data.draw(st.sampled_from(stops))


def orders(data: st.DataObject) -> st.SearchStrategy[Order]:
    """Orders for one example. `data`: where choices are drawn from that are made as the example goes."""
    calls = st.frozensets(_PLACES, max_size=3)
    lines = st.frozensets(_PLACES, min_size=1, max_size=2)
    return st.one_of(
        st.builds(Switches, calls),
        st.builds(Switches, st.frozensets(_PLACES, max_size=1), lines),
        st.builds(AnyOrder, st.just(data)),
    )
