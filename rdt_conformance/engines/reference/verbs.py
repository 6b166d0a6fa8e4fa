"""Where verbs of user code run while lanes take turns: one that has to wait must not keep who gives the turns."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any


class Verbs:
    """Threads, each for one verb at a time, as many as there are verbs under way. Used by one thread.

    Args:
        changed: notified when a verb has ended.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._threads: list[_VerbThread] = []
        self._idle: list[_VerbThread] = []

    def run(self, verb: Callable[[], Any]) -> Future[Any]:
        """Start it; the future has what it returns or raises."""
        if self._idle:
            thread = self._idle.pop()
        else:
            thread = _VerbThread(self._ended)
            self._threads.append(thread)
        return thread.begin(verb)

    def threads(self) -> list[threading.Thread]:
        """All of them."""
        return [*self._threads]

    def under_way(self) -> list[threading.Thread]:
        """Those whose verb has not ended."""
        return [thread for thread in self._threads if thread.is_busy()]

    def close(self) -> None:
        """End them; one whose verb is stuck stays as it is."""
        for thread in self._threads:
            thread.end()

    def _ended(self, thread: _VerbThread, answer: Callable[[], None]) -> None:
        self._idle.append(thread)  # before whoever waits for the answer has the next verb
        answer()
        with self._changed:
            self._changed.notify_all()


class _VerbThread(threading.Thread):
    def __init__(self, ended: Callable[[_VerbThread, Callable[[], None]], None]) -> None:
        super().__init__(name="user code", daemon=True)
        self._ended = ended
        self._verbs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._last: weakref.ref[Future[Any]] | None = None  # what it has brought is not this thread's to keep
        self.start()

    def begin(self, verb: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._last = weakref.ref(future)
        self._verbs.put((verb, future))
        return future

    def is_busy(self) -> bool:
        last = self._last and self._last()
        return last is not None and not last.done()

    def end(self) -> None:
        self._verbs.put(None)

    def run(self) -> None:
        while (job := self._verbs.get()) is not None:
            self._run(*job)
            del job  # an idle thread must not keep what the verb was about alive

    def _run(self, verb: Callable[[], Any], future: Future[Any]) -> None:
        try:
            answer = partial(future.set_result, verb())
        except BaseException as error:
            answer = partial(future.set_exception, error)
        self._ended(self, answer)
        del verb, future, answer  # the frames that an error refers to would keep them alive, and it with them
