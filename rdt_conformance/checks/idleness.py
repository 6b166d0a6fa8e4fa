"""Whether processes leave the processor to others while nothing is under way."""

from __future__ import annotations

import threading
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
_MOST_LOOKS = 12


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
class _Look:
    used: Counter[str]
    """Seconds by thread."""
    wanted: float
    """Seconds of all threads together, those included in which a processor was waited for."""
    at: float


def restless(processes: Sequence[Process]) -> Restless | bool:
    """Who does not rest, though the caller sees to it that nothing is under way; False if all of them do.

    True: cannot be told, as the machine has so much else to do that they hardly get on.
    """
    before, found = _look(processes), Counter[str]()
    least: dict[str, float] = {}
    for _ in range(_MOST_LOOKS):
        time.sleep(LOOK_SECONDS)  # the time in which nothing is to happen
        after = _look(processes)
        rest = True
        for name, look in after.items():
            seconds = look.at - before[name].at
            used = look.used - before[name].used
            share = used.total() / seconds
            rest = rest and (look.wanted - before[name].wanted) / seconds <= MOST
            found[name] = found[name] + 1 if share > MOST else 0
            least[name] = min(share, least[name]) if found[name] > 1 else share
            if found[name] == LOOKS:
                return Restless(name, used.most_common(1)[0][0].partition(" ")[2], least[name])
        if rest:
            return False
        before = after
    return True


def _look(processes: Sequence[Process]) -> dict[str, _Look]:
    return {process.name: process.run(_look_here).result() for process in processes}


def _look_here(worker: Any) -> _Look:
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    seconds = proc.thread_seconds()
    used = Counter({f"{each} {names.get(each) or proc.name_of(each)}": ran for each, (ran, _) in seconds.items()})
    return _Look(used, sum(ran + waited for ran, waited in seconds.values()), time.monotonic())
