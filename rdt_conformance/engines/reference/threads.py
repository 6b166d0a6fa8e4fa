"""Workers as threads of this process: one worker per actor, one thread per lane."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.context import inside
from rdt_conformance.engines.reference.errors import ActorDiedError
from rdt_conformance.engines.reference.registry import Registration, Registry
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.history import History


@dataclass
class _Job:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    future: Future[Any]


class _LaneThread:
    """Runs the jobs of one lane, one at a time, in order."""

    def __init__(self, worker: Worker, lane: Lane, finished: Callable[[], None]) -> None:
        self._worker = worker
        self._lane = lane
        self._finished = finished
        # SimpleQueue.put is safe inside a finalizer, wherever Python happens to run it.
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.running: _Job | None = None
        self.dead = False
        self.thread = threading.Thread(target=self._run, name=f"rdt-{worker.name}-{lane.value}", daemon=True)
        self.thread.start()

    def put(self, job: _Job | None) -> None:
        """Append a job; None ends the thread after the jobs before it."""
        self._jobs.put(job)

    def _run(self) -> None:
        with inside(self._worker, self._lane):
            while (job := self._jobs.get()) is not None:
                if self.dead:
                    _settle(job.future, error=ActorDiedError(f"{self._worker.name} was killed"))
                else:
                    self.running = job
                    _run_job(job, self._worker)
                    self.running = None
                self._finished()
                del job  # an idle lane must not keep the last job's tensors alive


def _run_job(job: _Job, worker: Worker) -> None:
    try:
        result = job.function(worker, *job.args)
    except BaseException as error:
        # The traceback's frames would keep tensors alive for as long as the error is.
        traceback.clear_frames(error.__traceback__)
        _settle(job.future, error=error)
    else:
        _settle(job.future, result=result)


def _settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    """Answer, unless the worker was killed meanwhile and the caller has been told so."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class ThreadHost:
    """A set of workers in this process, connected by function calls (see `host.Host`)."""

    def __init__(self, registrations: tuple[Registration, ...], history: History, settings: Settings) -> None:
        self.registrations = registrations
        self.history = history
        self.settings = settings
        self.workers: dict[str, Worker] = {}
        self._lanes: dict[tuple[str, Lane], _LaneThread] = {}
        self._unfinished = 0
        self._idle = threading.Condition()

    def start(self, name: str) -> Worker:
        """Start a worker, or start one again under the name of one that died, with everything that is registered."""
        worker = Worker(name, self, Registry(self.registrations), self.history, self.settings)
        self.workers[name] = worker
        for lane in Lane:
            self._lanes[name, lane] = _LaneThread(worker, lane, self._one_finished)
        return worker

    def submit(self, to: str, lane: Lane, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """See `host.Host.submit`."""
        future: Future[Any] = Future()
        thread = self._lanes.get((to, lane))
        if thread is None:
            future.set_exception(ActorDiedError(f"{to} is dead"))
            return future
        with self._idle:
            self._unfinished += 1
        thread.put(_Job(function, args, future))
        return future

    def kill(self, name: str) -> None:
        """See `host.Host.kill`. What is running cannot be stopped, but its answer no longer reaches anybody."""
        for lane in Lane:
            thread = self._lanes.pop((name, lane), None)
            if thread is None:
                continue
            thread.dead = True
            running = thread.running
            if running is not None:
                _settle(running.future, error=ActorDiedError(f"{name} was killed"))
            thread.put(None)
        self.workers.pop(name, None)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no lane has anything left to do; whether that came true within `seconds`."""
        with self._idle:
            return self._idle.wait_for(lambda: self._unfinished == 0, seconds)

    def stacks(self) -> str:
        """Where each lane that is inside a job stands right now."""
        busy = [lane.thread for lane in list(self._lanes.values()) if lane.running is not None]
        return format_stacks(busy)

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

    def _one_finished(self) -> None:
        with self._idle:
            self._unfinished -= 1
            if self._unfinished == 0:
                self._idle.notify_all()


def format_stacks(threads: Iterable[threading.Thread]) -> str:
    """The stacks of `threads`, from the transport's own code downwards where there is some."""
    frames = sys._current_frames()
    parts = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        if frame is None:
            continue
        lines = traceback.format_stack(frame)
        cut = max((i for i, line in enumerate(lines) if "/rdt_conformance/engines/" in line), default=-1)
        parts.append(f"{thread.name}:\n{''.join(lines[cut + 1 :] or lines[-3:])}")
    return "\n".join(parts)
