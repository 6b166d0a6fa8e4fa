"""Whether processes leave the processor to others while nothing is under way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rdt_conformance.engines.world import Process
from rdt_conformance.observe import proc

LOOKS = 3
"""In so many, one after the other, a process has to be restless: for a moment it may have something to clean up."""
LOOK_SECONDS = 0.3
MOST = 0.5
"""Of a processor. Threads that only look now and then whether there is something to do take a tenth of that."""
_SOME = 0.2
"""Of a processor, where others want it too: who looks now and then waits long for it there, but uses less."""
_ALL = 0.9
"""Of the time, in which somebody who never rests runs or waits for a processor."""
_MOST_LOOKS = 12


class CannotTell(Exception):
    """The machine has so much else to do that the processes hardly get on."""


@dataclass(frozen=True)
class Restless:
    """A process that used the processor in each look.

    Args:
        process: its name.
        thread: the name of the thread that did most.
        share: the least part of a processor that it used in a look.
    """

    process: str
    thread: str
    share: float


@dataclass(frozen=True)
class Look:
    """What a process has used until now, in seconds.

    Args:
        used: by all of its threads, those included that have ended.
        threads: by each that is there, and by its name.
        waited: for a processor, by each that is there; None if the system does not tell.
        at: the time of the look.
    """

    used: float
    threads: dict[str, float]
    waited: dict[str, float] | None
    at: float


def restless(processes: Sequence[Process]) -> Restless | None:
    """A process that does not rest, though the caller sees to it that nothing is under way; None if all of them do.

    Raises:
        CannotTell: neither is certain after a dozen looks.
    """
    before, times = _look(processes), Counter[str]()
    shares: dict[str, list[float]] = {process.name: [] for process in processes}
    for _ in range(_MOST_LOOKS):
        time.sleep(LOOK_SECONDS)  # the time in which nothing is to happen
        after, all_rest = _look(processes), True
        for name, look in after.items():
            used, wanted = _shares(before[name], look)
            all_rest = all_rest and wanted <= MOST
            shares[name].append(used)
            never_rests = used > MOST or (used > _SOME and wanted > _ALL)
            times[name] = times[name] + 1 if never_rests else 0
            if times[name] == LOOKS:
                return Restless(name, _busiest(before[name], look), min(shares[name][-LOOKS:]))
        if all_rest:
            return None
        before = after
    raise CannotTell


def _shares(before: Look, after: Look) -> tuple[float, float]:
    """Of the time between two looks: how much of a processor was used, and how much of one was wanted."""
    passed, used = after.at - before.at, after.used - before.used
    if after.waited is None or before.waited is None:
        return used / passed, MOST + _SOME  # neither little nor all
    return used / passed, (used + sum(_since(before.waited, after.waited).values())) / passed


def _busiest(before: Look, after: Look) -> str:
    ran = _since(before.threads, after.threads)
    return max(ran, key=lambda thread: ran[thread], default="").partition(" ")[2]


def _since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What has been added, by each thread that is still there."""
    return {thread: seconds - before.get(thread, 0.0) for thread, seconds in after.items()}


def _look(processes: Sequence[Process]) -> dict[str, Look]:
    return {process.name: process.run(_look_here).result() for process in processes}


def _look_here(worker: Any) -> Look:
    names = proc.python_names()
    ran: dict[str, float] = {}
    waited: dict[str, float] = {}
    told = proc.thread_seconds()
    for thread, seconds in told.items():
        name = f"{thread} {names.get(thread) or proc.name_of(thread)}"
        ran[name], waited[name] = seconds
    return Look(time.process_time(), ran, waited if told else None, time.monotonic())
