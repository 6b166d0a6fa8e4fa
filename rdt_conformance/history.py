"""What happened where: every transport call and every step of the harness, in one clock."""

from __future__ import annotations

import itertools
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rdt_conformance.results import Step

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What some libraries put into their messages to be seen on a terminal."""

ARRIVALS = ("recv_multiple_tensors", "wait_fetch_complete")
"""The calls that bring tensors."""

RAISED = "raised "
"""How the outcome begins of a call that ended in an error."""
DESCRIBES = "extract_tensor_transport_metadata"
FREES = "garbage_collect"

KEPT = 4_000
"""Events kept per history; a long stress run forgets its beginning rather than filling the memory."""
_LAST_WORDS = 5


@dataclass
class Event:
    """One call while it is being recorded."""

    number: int
    began: float
    process: str
    lane: str
    what: str
    obj_id: str
    ended: float | None = None
    outcome: str = ""


class Recorder(ABC):
    """What transport calls are told to."""

    @contextmanager
    def record(self, process: str, lane: str, what: str, obj_id: str = "") -> Iterator[Event]:
        """Record one call. The body may set `outcome`; an exception sets it to ``raised …``."""
        event = self.begin(process, lane, what, obj_id, time.perf_counter())
        failed = True
        try:
            yield event
            failed = False
        except BaseException as error:
            event.outcome = f"{RAISED}{describe_error(error)}"
            raise
        finally:
            self.end(event, time.perf_counter(), failed=failed)

    @abstractmethod
    def begin(self, process: str, lane: str, what: str, obj_id: str, at: float) -> Event:
        """Note that a call began `at`, on the clock of ``time.perf_counter``."""

    @abstractmethod
    def end(self, event: Event, at: float, *, failed: bool) -> None:
        """Note that a call ended `at`."""


class History(Recorder):
    """A thread-safe log. Recording costs about a microsecond, so it is always on."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._shared: set[tuple[str, str]] = set()
        """What was shared when the log was cleared: the processes with the objects."""
        self._began_after: dict[str, int] = {}
        """The last event before a process took over the name of one that had died."""
        self._numbers = itertools.count(1)
        self._lock = threading.Condition()
        self._watchers = 0
        self._start = time.perf_counter()
        self.transfers = 0
        """Transfers that brought their tensors, over the whole life of this history."""
        self.last_words: deque[str] = deque(maxlen=_LAST_WORDS)
        """What ended threads meanwhile, where that is known."""

    def clear(self) -> None:
        """Forget everything but which objects are shared, and start the clock again."""
        with self._lock:
            for event in filter(self._is_of_the_living, self._events):
                _note(event, self._shared)
            self._events.clear()
            self._began_after.clear()
            self.last_words.clear()
            self._numbers = itertools.count(1)
            self._start = time.perf_counter()

    def note_new(self, process: str) -> None:
        """Note that a process is another one from now on, which shares nothing."""
        with self._lock:
            self._shared = {each for each in self._shared if each[0] != process}
            self._began_after[process] = self._events[-1].number if self._events else 0

    def begin(self, process: str, lane: str, what: str, obj_id: str, at: float) -> Event:
        """Note that a call began `at`, on the clock of ``time.perf_counter``."""
        with self._lock:
            event = Event(next(self._numbers), at - self._start, process, lane, what, obj_id)
            if len(self._events) == KEPT and self._is_of_the_living(self._events[0]):
                _note(self._events[0], self._shared)  # it drops out
            self._events.append(event)
            if self._watchers:
                self._lock.notify_all()
        return event

    def end(self, event: Event, at: float, *, failed: bool) -> None:
        """Note that a call ended `at`."""
        event.ended = at - self._start
        if not failed and event.what.startswith(ARRIVALS):
            self.transfers += 1

    def wait_for(self, what: str, process: str, seconds: float, obj_id: str = "") -> bool:
        """Wait until a call whose name starts with `what` has begun in `process`; whether one did within `seconds`.

        With an `obj_id`, only calls for that object count.
        """

        def began(event: Event) -> bool:
            return event.process == process and event.what.startswith(what) and obj_id in ("", event.obj_id)

        with self._lock:
            self._watchers += 1
            try:
                return self._lock.wait_for(lambda: any(map(began, self._events)), seconds)
            finally:
                self._watchers -= 1

    def always_refused_beside_others(self, process: str) -> bool:
        """Whether a process has refused to describe new objects, and shared others each time."""
        with self._lock:
            events, shared = list(filter(self._is_of_the_living, self._events)), set(self._shared)
        beside = []
        for event in events:
            if event.process == process and event.what.startswith(DESCRIBES) and event.outcome.startswith(RAISED):
                mine = {obj_id for owner, obj_id in shared if owner == process}
                beside.append(bool(mine) and event.obj_id not in mine)
            _note(event, shared)
        return bool(beside) and all(beside)

    def _is_of_the_living(self, event: Event) -> bool:
        """Whether an event is of a process that has its name still, and not of a dead one that had it before."""
        return event.number > self._began_after.get(event.process, 0)

    def steps(self, names: Mapping[str, str] | None = None) -> tuple[Step, ...]:
        """The events so far, oldest first, with object ids shortened to ``obj1``, ``obj2`` in order of appearance.

        Args:
            names: what to call objects instead, by their ids.
        """
        with self._lock:
            # Word of what happened elsewhere comes late.
            events = sorted(self._events, key=lambda event: event.began)
        short = dict(names or {})
        return tuple(
            Step(
                number=event.number,
                at=event.began,
                process=event.process,
                lane=event.lane,
                what=event.what,
                obj_id=short.setdefault(event.obj_id, f"obj{len(short) + 1}") if event.obj_id else "",
                ended=event.ended,
                outcome=event.outcome,
            )
            for event in events
        )


def _note(event: Event, shared: set[tuple[str, str]]) -> None:
    """Count the object of a call among those that its process shares, or not any more if it begins to free it."""
    if event.what.startswith(FREES):
        shared.discard((event.process, event.obj_id))
    elif event.what.startswith(DESCRIBES) and event.ended is not None and not event.outcome.startswith(RAISED):
        shared.add((event.process, event.obj_id))


def describe_error(error: BaseException, limit: int = 200) -> str:
    """``ValueError: the first line of its message``, at most `limit` characters."""
    lines = _COLOURS.sub("", str(error)).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"
