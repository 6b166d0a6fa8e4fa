"""One thread for each lane of a worker that lives in this process."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.context import inside
from rdt_conformance.engines.reference.errors import ActorDiedError
from rdt_conformance.engines.reference.worker import Worker


@dataclass
class Job:
    """A function to run on a lane, and the future that waits for what it returns."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    future: Future[Any]
    number: int
    """In the order in which jobs were submitted, to whatever lane."""


class LaneThread:
    """Runs the jobs of one lane, one at a time, in order."""

    def __init__(self, worker: Worker, lane: Lane, finished: Callable[[LaneThread], None]) -> None:
        self.worker = worker
        self.lane = lane
        self._finished = finished
        # SimpleQueue.put is safe inside a finalizer, wherever Python happens to run it.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.running: Job | None = None
        self.unfinished = 0
        """How many jobs it has been given and not finished; counted by whoever gives it jobs."""
        self.dead = False
        self.thread = threading.Thread(target=self._run, name=f"rdt-{worker.name}-{lane.value}", daemon=True)
        self.thread.start()

    def put(self, job: Job | None) -> None:
        """Append a job; None ends the thread after the jobs before it."""
        self._jobs.put(job)

    def _run(self) -> None:
        with inside(self.worker, self.lane):
            while (job := self._jobs.get()) is not None:
                if self.dead:
                    settle(job.future, error=ActorDiedError(f"{self.worker.name} was killed"))
                else:
                    self.running = job
                    _run_job(job, self.worker)
                    self.running = None
                self._finished(self)
                del job  # an idle lane must not keep the last job's tensors alive


def _run_job(job: Job, worker: Worker) -> None:
    try:
        result = job.function(worker, *job.args)
    except BaseException as error:
        # The traceback's frames would keep tensors and references alive for as long as the error is; this frame, which
        # cannot be cleared yet, those among the arguments.
        traceback.clear_frames(error.__traceback__)
        job.args = ()
        settle(job.future, error=error)
    else:
        settle(job.future, result=result)


def settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    """Answer a job, unless the worker was killed meanwhile and the caller has been told so."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def format_stacks(threads: Mapping[str, int | None]) -> str:
    """The stacks of threads, by name and ident, from the transport's own code downwards where there is some."""
    frames = sys._current_frames()
    parts = []
    for name, ident in threads.items():
        frame = frames.get(ident or 0)
        if frame is None:
            continue
        lines = traceback.format_stack(frame)
        cut = max((i for i, line in enumerate(lines) if "/rdt_conformance/engines/" in line), default=-1)
        parts.append(f"{name}:\n{''.join(lines[cut + 1 :] or lines[-3:])}")
    return "\n".join(parts)
