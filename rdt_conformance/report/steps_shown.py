"""Which steps of a long history are shown: all of one that is short, else those that are likely to matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rdt_conformance.results import Step

MOST = 40
"""A longer history is shown in part."""
_OF_ITS_OBJECT = 20
"""So many steps of the object in question are shown at most, the last ones: some objects live through hundreds."""
_BEFORE = 12
"""So many others are shown that came just before."""
_FIRST = 10
"""So many steps of the beginning are shown if nobody can say at which step the failure was seen."""


def steps_shown(history: Sequence[Step], marked: int | None = None) -> list[Step | int]:
    """The steps to show, in order; in the place of others, how many are left out there.

    Of a history of more than `MOST` steps these are what became of the object in question and what went on while the
    failure was seen, and then the steps just before that.

    Args:
        history: oldest first.
        marked: the number of the step at which the failure was seen, if there is one.
    """
    if len(history) <= MOST:
        return list(history)
    kept = set(list(dict.fromkeys(_that_matter(history, marked)))[:MOST])
    shown: list[Step | int] = []
    for is_kept, steps in groupby(range(len(history)), kept.__contains__):
        positions = list(steps)
        shown += [history[position] for position in positions] if is_kept else [len(positions)]
    return shown


def _that_matter(history: Sequence[Step], marked: int | None) -> Iterator[int]:
    """Positions of steps, those first that matter most."""
    seen = next((place for place, step in enumerate(history) if step.number == marked), None)
    if seen is None:
        yield from range(_FIRST)
        yield from reversed(range(len(history)))
        return
    failing = history[seen]
    yield seen
    backwards = list(reversed(range(len(history))))
    if failing.obj_id:
        yield from [place for place in backwards if history[place].obj_id == failing.obj_id][:_OF_ITS_OBJECT]
    yield from (place for place in backwards if _meet(history[place], failing))
    yield from reversed(range(max(0, seen - _BEFORE), seen))


def _meet(step: Step, other: Step) -> bool:
    """Whether both were under way at the same time."""
    return (step.ended is None or step.ended > other.at) and (other.ended is None or other.ended > step.at)
