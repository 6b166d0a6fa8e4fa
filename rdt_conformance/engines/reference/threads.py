"""Workers as threads of this process: one worker per actor, one thread per lane."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from typing import Any

from rdt_conformance.engines.base import DRIVER, Lane
from rdt_conformance.engines.reference import calls
from rdt_conformance.engines.reference.errors import ActorDiedError
from rdt_conformance.engines.reference.handles import ActorHandle, stand_in
from rdt_conformance.engines.reference.host import Host
from rdt_conformance.engines.reference.lanes import Job, LaneThread, format_stacks, settle
from rdt_conformance.engines.reference.registry import Registration, Registry
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.history import Recorder
from rdt_conformance.observe import Observer, Watch


class ThreadHost:
    """A set of workers in this process, connected by function calls (see `host.Processes`).

    Args:
        registrations: the transports that every worker knows.
        history: where their calls are recorded.
        settings: what Ray would read from its environment.
        reached_by: how the workers reach others, if not through this host.
    """

    def __init__(
        self,
        registrations: tuple[Registration, ...],
        history: Recorder,
        settings: Settings,
        reached_by: Host | None = None,
    ) -> None:
        self.registrations = registrations
        self._history = history
        self.settings = settings
        self.workers: dict[str, Worker] = {}
        self._reached_by = reached_by or self
        self._lanes: dict[tuple[str, Lane], LaneThread] = {}
        self.submitted = 0
        """Jobs so far; more than before means that something has happened in between."""
        self._unfinished = 0
        self.changed = threading.Condition()
        """Notified whenever a lane has finished a job."""

    @property
    def driver(self) -> Worker:
        """The worker of the process that has no actor."""
        return self.workers[DRIVER]

    def expect(self, names: Sequence[str]) -> None:
        """See `host.Processes.expect`: threads take no time."""

    def start(self, name: str) -> None:
        """See `host.Processes.start`."""
        self.add(Worker(name, self._reached_by, Registry(self.registrations), self._history, self.settings))

    def add(self, worker: Worker, lanes: Iterable[Lane] = tuple(Lane)) -> None:
        """Give a worker its lanes, or those that it does not have elsewhere."""
        self.workers[worker.name] = worker
        for lane in lanes:
            self._lanes[worker.name, lane] = LaneThread(worker, lane, self._one_finished)

    def pause(self, name: str) -> bool:
        """See `host.Processes.pause`: no worker is a process of its own."""
        return False

    def resume(self, name: str) -> None:
        """See `host.Processes.resume`."""

    @property
    def at_least(self) -> int:
        """See `host.Processes.at_least`."""
        return 1

    def introduce(self) -> None:
        """See `host.Processes.introduce`: in this process, everybody knows everybody."""

    def submit(self, to: str, lane: Lane, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """See `host.Host.submit`."""
        future: Future[Any] = Future()
        thread = self._lanes.get((to, lane))
        if thread is None:
            future.set_exception(ActorDiedError(f"{to} is dead"))
            return future
        with self.changed:
            self._unfinished += 1
            thread.unfinished += 1
            self.submitted += 1
            thread.put(Job(function, args, future, self.submitted))
        return future

    def died(self) -> dict[str, bool]:
        """See `host.Processes.died`. What ends a thread's process ends this one."""
        return {}

    def last_words(self) -> str:
        """See `host.Processes.last_words`."""
        return ""

    def kill(self, name: str) -> None:
        """See `host.Host.kill`. What is running cannot be stopped, but its answer no longer reaches anybody."""
        for lane in Lane:
            thread = self._lanes.pop((name, lane), None)
            if thread is None:
                continue
            thread.dead = True
            running = thread.running
            if running is not None:
                settle(running.future, error=ActorDiedError(f"{name} was killed"))
            thread.put(None)
        self.workers.pop(name, None)

    def handle(self, name: str) -> ActorHandle | None:
        """See `host.Host.handle`."""
        return stand_in(name)

    def wait_idle(self, seconds: float) -> bool:
        """See `host.Processes.wait_idle`."""
        with self.changed:
            return self.changed.wait_for(lambda: self._unfinished == 0, seconds)

    def tidy(self, seconds: float) -> bool:
        """See `host.Processes.tidy`."""
        deadline = time.monotonic() + seconds
        workers = list(self.workers.values())
        collected = [
            self.submit(worker.name, calls.collect_lane(worker.name), calls.collect_what_is_left)
            for worker in workers
            if worker.described
        ]
        wait(collected, seconds)
        for worker in workers:
            worker.held.clear()
        return self.wait_idle(max(0.0, deadline - time.monotonic())) and all(
            worker.is_empty() for worker in list(self.workers.values())
        )

    def watch(self, *, memory: bool = True) -> Observer:
        """See `host.Processes.watch`: all workers are in one process, which is watched."""
        built = [instance for worker in list(self.workers.values()) for instance in worker.registry.instances()]
        return Watch(built, memory=memory)

    def stacks(self) -> str:
        """See `host.Processes.stacks`."""
        lanes = [lane.thread for lane in list(self._lanes.values()) if lane.running is not None]
        return format_stacks({thread.name: thread.ident for thread in lanes})

    def stop(self, seconds: float = 2.0) -> None:
        """End all lanes that can end, and let go of the transports, here and now.

        A native transport must not be torn down on some other thread while the next one is being built. A lane that is
        stuck is left behind as a daemon thread, and keeps what it is stuck in.
        """
        # A monitor may kill a worker meanwhile.
        lanes, workers = list(self._lanes.values()), list(self.workers.values())
        for lane in lanes:
            lane.put(None)
        deadline = time.monotonic() + seconds
        for lane in lanes:
            if lane.running is None:
                lane.thread.join(max(0.0, deadline - time.monotonic()))
        for worker in workers:
            worker.close()

    def take_turns(self, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """From now on, have every worker enter `turn()` around each transport call (see `Worker.turn`)."""
        for worker in list(self.workers.values()):
            worker.turn = turn

    def lanes(self) -> list[LaneThread]:
        """All lanes of all workers."""
        return list(self._lanes.values())

    def _one_finished(self, lane: LaneThread) -> None:
        with self.changed:
            self._unfinished -= 1
            lane.unfinished -= 1
            self.changed.notify_all()
