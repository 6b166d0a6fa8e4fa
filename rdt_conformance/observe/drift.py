"""What grows for good in processes that work for a long time, told from counts taken while they were at rest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rdt_conformance.observe.leaks import Leak, is_inside
from rdt_conformance.observe.resources import MEMORIES, REGISTRATIONS

FEWEST_STEPS = 6
"""Between two counts each; of fewer nothing can be told."""
_LEAST = 3
"""So many things are a leak at least: fewer can be something else that goes on in the process."""
_LARGEST_CACHE = 1_000
"""Elements that a container may keep for later, in all processes together."""
_RAYS_OWN = ("open files", "sockets", "pipes", "other descriptors", "threads")
"""Kinds of which Ray itself keeps some for every process that died."""
_OF_EACH_DEATH = 3
"""So many of each."""


@dataclass(frozen=True)
class Level:
    """What was held at one moment by the processes that live from the first to the last."""

    seconds: float
    """Since the beginning."""
    objects: int
    """Made so far."""
    sent: int
    """Bytes of them."""
    deaths: int
    """Processes that died so far."""
    figures: dict[str, int]
    """By kind."""
    names: dict[str, tuple[str, ...]]
    """By kind, the latest of what was not there in the beginning."""


def drift(levels: Sequence[Level]) -> list[Leak]:
    """What leaks: it grew in each third of the time, in the last not much less than in the others, and by enough.

    The first count has to come when everything has been used once. Where a pool or a cache ends nobody tells, so what
    grows ever more slowly is no leak, nor is a container with fewer than a thousand elements more. Memory leaks if it
    grew by more than half of what was sent.

    Raises:
        ValueError: too few counts, see `FEWEST_STEPS`.
    """
    if len(levels) <= FEWEST_STEPS:
        raise ValueError("too few counts to tell a leak")
    first, last = levels[0], levels[-1]
    leaks = [
        Leak(kind, grew / objects, first.figures.get(kind, 0), figure, objects, last.names.get(kind, ())[-3:])
        for kind, figure in last.figures.items()
        if (grew := figure - first.figures.get(kind, 0)) >= _allowed(kind, first, last)
        and (objects := last.objects - first.objects)
        and _goes_on([level.figures.get(kind, 0) for level in levels])
    ]
    kinds = [leak.kind for leak in leaks]
    return [leak for leak in leaks if not any(is_inside(leak.kind, other) for other in kinds)]


def _goes_on(counts: Sequence[int]) -> bool:
    third = (len(counts) - 1) / 3
    ends = [counts[round(number * third)] for number in range(4)]
    *earlier, last = [after - before for before, after in itertools.pairwise(ends)]
    return min(*earlier, last) > 0 and 4 * last >= sum(earlier)


def _allowed(kind: str, first: Level, last: Level) -> float:
    """How much growth of a kind is the least that is a leak."""
    if kind in MEMORIES:
        return max(1 << 20, (last.sent - first.sent) / 2)
    if kind.startswith(REGISTRATIONS):
        return _LARGEST_CACHE
    of_deaths = _OF_EACH_DEATH * (last.deaths - first.deaths) if kind in _RAYS_OWN else 0
    return _LEAST + of_deaths
