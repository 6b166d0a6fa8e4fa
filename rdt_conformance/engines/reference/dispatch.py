"""Tasks reach each actor in the order of submission, and only once everything they are given exists."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference import work
from rdt_conformance.engines.reference.work import Task

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker


@dataclass
class _Queued:
    needs: Sequence[Future[Any]]
    make_task: Callable[[], Task]
    done: Future[Any]
    not_sent: Callable[[], None]


class Dispatcher:
    """One queue per actor. A task whose argument failed to be created fails with that error and does not run (L7)."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._queues: dict[str, deque[_Queued]] = defaultdict(deque)
        self._lock = threading.RLock()

    def submit(
        self,
        actor: str,
        needs: Sequence[Future[Any]],
        make_task: Callable[[], Task],
        not_sent: Callable[[], None],
    ) -> Future[Any]:
        """Queue a task; returns what it will answer. If it is never sent, `not_sent` is called first."""
        queued = _Queued(needs, make_task, Future(), not_sent)
        with self._lock:
            self._queues[actor].append(queued)
        for need in needs:
            need.add_done_callback(lambda _: self._worker.host.submit(self._worker.name, Lane.IO, _pump, actor))
        self.pump(actor)
        return queued.done

    def pump(self, actor: str) -> None:
        """Send on every task at the head of the queue that has what it needs."""
        with self._lock:
            queue = self._queues[actor]
            while queue and all(need.done() for need in queue[0].needs):
                self._send(actor, queue.popleft())

    def _send(self, actor: str, queued: _Queued) -> None:
        for need in queued.needs:
            error = need.exception()
            if error is not None:
                queued.not_sent()
                queued.done.set_exception(error)
                return
        try:
            task = queued.make_task()
        except Exception as error:
            queued.not_sent()
            queued.done.set_exception(error)
            return
        answer = self._worker.host.submit(actor, Lane.MAIN, work.run_task, task)
        answer.add_done_callback(lambda done: _finish(queued, done))


def _finish(queued: _Queued, answer: Future[Any]) -> None:
    error = answer.exception()
    if error is not None:
        queued.done.set_exception(error)
    else:
        queued.done.set_result(answer.result())


def _pump(worker: Worker, actor: str) -> None:
    worker.owner.pump(actor)
