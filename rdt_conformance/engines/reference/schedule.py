"""One lane at a time, in an order that somebody else chooses.

Left alone, the threads of the local engine run as the system pleases. While a schedule is in force, every lane stops
before each transport call, and, where the order says so, in the middle of one: before a line of the transport's own
code. The thread that waits for an answer lets them go on, one after another. A lane that is blocked inside a call is
seen to be, and the others go on without it.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.asleep import Sleepers
from rdt_conformance.engines.reference.one_processor import OneProcessor
from rdt_conformance.engines.reference.verbs import Verbs
from rdt_conformance.engines.reference.waiting import ClockThread, waits

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.lanes import LaneThread
    from rdt_conformance.history import Recorder

_LOOK = 150e-6
"""Seconds between two looks at threads that may be asleep: a thread that can run does so within them."""
_REST = 2e-3
"""Seconds to wait for something to happen when nobody can go on."""
_BUSY = 1.0
"""Seconds after which a lane that is still at work is left to it, and others go on beside it."""
_HELPERS_BUSY = 0.05
"""Seconds after which the transport's own threads are left to their work: some are never done."""


@dataclass(frozen=True)
class Stop:
    """Where a lane waits for its turn.

    Args:
        process: whose lane it is.
        lane: the lane.
        job: the number of its job, in the order in which jobs were submitted.
        inside: it is in the middle of a call.
    """

    process: str
    lane: Lane
    job: int
    inside: bool
    turn: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)


class Order(ABC):
    """Chooses, asked by one thread at a time. Calls are not stopped in the middle unless a subclass says so."""

    into_calls = False
    """Whether calls are to be stopped in the middle at all, which makes them much slower."""

    @abstractmethod
    def choose(self, stops: Sequence[Stop]) -> Stop:
        """Who goes on; `stops` come in the order of their jobs, and there is at least one."""

    def interrupts(self, process: str, lane: Lane, line: tuple[str, int]) -> bool:
        """Whether a lane stops before a line (file and number) of the transport's code that it is about to run."""
        return False


class Lanes(Protocol):
    """The lanes of some workers, as far as their schedule needs to know."""

    @property
    def changed(self) -> threading.Condition:
        """Notified whenever a lane has finished a job."""
        ...

    def lanes(self) -> list[LaneThread]:
        """All of them."""
        ...


class Schedule:
    """Gives lanes their turns.

    Args:
        order: who goes on.
        folders: where the transport's own code lies; each ends with a separator.
        history: where stops in the middle of a call are told.
        lanes: who there is.
    """

    def __init__(self, order: Order, folders: tuple[str, ...], history: Recorder, lanes: Lanes) -> None:
        self._order = order
        self._folders = folders
        self._history = history
        self._lanes = lanes
        self._changed = lanes.changed
        self._stops: dict[threading.Thread, Stop] = {}
        self.verbs = Verbs(lanes.changed)
        """Where user code runs meanwhile."""
        self._sleepers = Sleepers()
        self._over = False
        self._processor = OneProcessor(lane.thread for lane in lanes.lanes())

    # --- the lanes' side ------------------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for one's turn, then run the body: one transport call."""
        lane = self._own_lane()
        if lane is None:
            yield
            return
        self._stop(lane, inside=False)
        traced = self._order.into_calls and sys.gettrace() is None  # not where somebody debugs or measures coverage
        if traced:
            sys.settrace(lambda frame, event, arg: self._trace(lane, frame))
        try:
            yield
        finally:
            if traced:
                sys.settrace(None)

    def _own_lane(self) -> LaneThread | None:
        own = threading.current_thread()
        return next((lane for lane in self._lanes.lanes() if lane.thread is own), None)

    def _trace(self, lane: LaneThread, frame: FrameType) -> Callable[[FrameType, str, Any], Any] | None:
        """The trace function of a frame (see `sys.settrace`), if its code is the transport's own."""
        if not frame.f_code.co_filename.startswith(self._folders):
            return None

        def in_frame(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line" and not self._over:
                self._stop_before(lane, frame.f_code.co_filename, frame.f_lineno)
            return in_frame

        return in_frame

    def _stop_before(self, lane: LaneThread, file: str, line: int) -> None:
        if not self._order.interrupts(lane.worker.name, lane.lane, (file, line)):
            return
        what = f"… stops before line {line} of {os.path.basename(file)}: {linecache.getline(file, line).strip()}"
        with self._history.record(lane.worker.name, lane.lane.value, what) as event:
            self._stop(lane, inside=True)
            event.outcome = "goes on"

    def _stop(self, lane: LaneThread, *, inside: bool) -> None:
        running = lane.running
        stop = Stop(lane.worker.name, lane.lane, running.number if running is not None else 0, inside)
        with self._changed:
            if self._over:
                return
            self._stops[lane.thread] = stop
            self._changed.notify_all()
        stop.turn.wait()

    # --- the side of the thread that waits ------------------------------------------------------------------------

    def run(self, done: Callable[[], bool], seconds: float) -> bool:
        """Give turns until something is done; whether that came true within `seconds`."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            self._come_to_rest()
            with self._changed:
                stops = sorted(self._stops.items(), key=lambda item: item[1].job)
                if done():
                    break
                if not stops:
                    self._changed.wait(_REST)
                    continue
            self._let_go(dict(stops))
        return True

    def _let_go(self, stops: dict[threading.Thread, Stop]) -> None:
        chosen = self._order.choose(list(stops.values()))
        with self._changed:
            del self._stops[next(thread for thread, stop in stops.items() if stop is chosen)]
        chosen.turn.set()

    def end(self) -> None:
        """Let everybody go on as the system pleases."""
        with self._changed:
            self._over = True
            for stop in self._stops.values():
                stop.turn.set()
            self._stops.clear()
        self._processor.end()
        self.verbs.close()
        self._sleepers.close()

    def _come_to_rest(self) -> None:
        """Wait until every lane has stopped, or has nothing to do, or is asleep; and so has every verb."""
        before, began = None, time.monotonic()
        while (passed := time.monotonic() - began) < _BUSY:
            with self._changed:
                # Meanwhile others run: a look on either side of this wait tells whether anybody did.
                if self._changed.wait_for(lambda: not self._awake(), _LOOK):
                    return
                awake = self._awake()
            after = self._sleepers.look([*awake, *(self._helpers() if passed < _HELPERS_BUSY else ())])
            if after is not None and after == before:
                return
            before = after

    def _awake(self) -> list[threading.Thread]:
        lanes = [lane.thread for lane in self._lanes.lanes() if lane.unfinished and lane.thread not in self._stops]
        return [thread for thread in (*lanes, *self.verbs.under_way()) if not waits(thread)]

    def _helpers(self) -> Collection[threading.Thread]:
        """The transport's own threads, as far as Python knows them: what they are about to do may wake a lane."""
        ours = {threading.current_thread(), *(lane.thread for lane in self._lanes.lanes()), *self.verbs.threads()}
        return [each for each in threading.enumerate() if each not in ours and not isinstance(each, ClockThread)]
