"""A world of processes, as its driver sees it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

import psutil

from rdt_conformance import pickling
from rdt_conformance.engines.base import DRIVER, Lane, Spread, origin_of
from rdt_conformance.engines.cluster import crashes
from rdt_conformance.engines.cluster.actor import GROUPS, WATCH, AtRest, run_message
from rdt_conformance.engines.cluster.channel import (
    Answer,
    Began,
    Ended,
    Kill,
    Request,
    ThreadEnded,
    load_outcome,
    outcome_of,
)
from rdt_conformance.engines.cluster.fleet import Fleet, Remote
from rdt_conformance.engines.cluster.groups import FEWEST, RayGroups
from rdt_conformance.engines.cluster.watching import SpreadWatch
from rdt_conformance.engines.places import Place
from rdt_conformance.engines.reference import calls, thread_errors
from rdt_conformance.engines.reference.context import inside
from rdt_conformance.engines.reference.errors import ActorDiedError
from rdt_conformance.engines.reference.lanes import settle
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.engines.untyped import the_ray
from rdt_conformance.history import Event, History
from rdt_conformance.observe import Observer

_LOOK_SECONDS = 30.0
"""For a process to answer when it is looked at from the side."""
_NO_REASON = "its worker process has died"
"""What Ray says of an actor's death if it has neither killed the actor nor taken its memory back."""


class ProcessHost:
    """The driver in this process and each actor in its own (see `reference.host.Processes`).

    All messages between processes go through here, so this is the one place that knows what is under way.

    Args:
        fleet: gives processes.
        settings: what Ray would read from its environment.
        history: of all processes.
        groups: Ray's collective groups, for a transport that needs them.
        spread: how far apart the actors are.
    """

    def __init__(
        self,
        fleet: Fleet,
        settings: Settings,
        history: History,
        groups: RayGroups | None = None,
        *,
        spread: Spread = Spread.NODES,
    ) -> None:
        self.at_least = FEWEST if groups else 1
        self._groups = groups
        self.history = history
        thread_errors.listen(history.last_words)  # of the driver's threads
        self.settings = settings
        self._fleet = fleet
        self._spread = spread
        self._numbers: dict[str, int] = {}
        self._here = ThreadHost((), history, settings, reached_by=self)
        self._remotes: dict[str, Remote] = {}
        self._lost_ones: dict[str, Remote] = {}
        self._handles: dict[str, Any] = {}
        self._events: dict[tuple[str, int], Event] = {}
        self._unanswered = 0
        self._submitted = 0
        self._changed = threading.Condition()
        self._answers: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._deliver, name="rdt-answers", daemon=True).start()

    @property
    def driver(self) -> Worker:
        """See `host.Processes.driver`."""
        return self._here.driver

    def add_driver(self, worker: Worker) -> None:
        """Give the driver's worker its lanes."""
        if self._groups is not None:
            worker.groups = self._groups
        self._here.add(worker)

    def introduce(self) -> None:
        """See `host.Processes.introduce`."""
        if self._groups is not None:
            self._groups.cover([remote.handle for remote in self._remotes.values()])

    def expect(self, names: Sequence[str]) -> None:
        """See `host.Processes.expect`."""
        for place, count in Counter(map(self._place, names)).items():
            self._fleet.prepare(count, place)

    def _place(self, name: str) -> Place:
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        return self._fleet.places.of(number, self._spread)

    def start(self, name: str) -> None:
        """See `host.Processes.start`."""
        remote = self._fleet.take(self._place(name))
        remote.receive = lambda message: self._received(name, remote, message)
        remote.gone = lambda: self._lost(name, remote)
        the_ray().get(remote.handle.begin.remote(name, self.settings), timeout=_LOOK_SECONDS)
        self._remotes[name] = remote
        self._handles[name] = remote.handle

    def handle(self, name: str) -> Any:
        """See `host.Host.handle`: Ray's own. A dead actor has one too."""
        return None if name == DRIVER else self._handles[name]

    # --- messages -------------------------------------------------------------------------------------------------

    def submit(self, to: str, lane: Lane, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """See `host.Host.submit`."""
        if to == DRIVER:
            return self._here.submit(to, lane, function, *args)
        return self._send(to, lane, pickling.dumps((function, args)))

    def _send(self, to: str, lane: Lane, message: bytes) -> Future[Any]:
        future: Future[Any] = Future()
        remote = self._remotes.get(to)
        if remote is None:
            future.set_exception(ActorDiedError(f"{to} is dead"))
            return future
        on_lane = remote.handle.run.options(concurrency_group=GROUPS[lane]) if GROUPS[lane] else remote.handle.run
        self._await(to, remote, on_lane.remote(lane.value, message), future)
        return future

    def _await(self, name: str, remote: Remote, answer: Any, future: Future[Any]) -> None:
        """Let `future` have what an actor answers, once word of what it did before that is here."""
        with self._changed:
            self._unanswered += 1
            self._submitted += 1
        # Ray's own thread must not be kept busy, and must not call Ray.
        answer.future().add_done_callback(
            lambda done: self._answers.put(lambda: self._answered(name, remote, future, done))
        )

    def _deliver(self) -> None:
        while (answer := self._answers.get()) is not None:
            answer()
            del answer

    def _answered(self, name: str, remote: Remote, future: Future[Any], done: Future[Any]) -> None:
        result, error = None, done.exception()
        if error is None:
            sent, outcome, *returned = done.result()
            # What the process did comes before what it answered.
            remote.channel.wait_processed(sent, _LOOK_SECONDS)
            with inside(self.driver, Lane.IO):
                result, error = load_outcome(outcome)
            if error is None and returned and returned[0]:
                (result,) = returned[0]
        settle(future, result, error and self.translate(name, error))
        with self._changed:
            self._unanswered -= 1
            self._changed.notify_all()

    def translate(self, name: str, error: BaseException) -> BaseException:
        """What an actor's error, or Ray's about the actor, is to those who asked."""
        from ray.exceptions import RayError

        return ActorDiedError(f"{name} died") if isinstance(error, RayError) and origin_of(error) is None else error

    def _received(self, name: str, remote: Remote, message: Any) -> None:
        """Deal with what an actor says unasked."""
        if isinstance(message, Began):
            began = self.history.begin(name, message.lane, message.what, message.obj_id, message.at + remote.behind)
            self._events[name, message.number] = began
        elif isinstance(message, Ended):
            event = self._events.pop((name, message.number))
            event.outcome = message.outcome
            self.history.end(event, message.at + remote.behind, failed=message.failed)
        elif isinstance(message, ThreadEnded):
            self.history.last_words.append(f"{name}, {message.told}")
        elif isinstance(message, Request):
            self._forward(remote, message)
        elif isinstance(message, Kill):
            self.kill(message.name)

    def _forward(self, remote: Remote, request: Request) -> None:
        def answer(done: Future[Any]) -> None:
            remote.channel.send(Answer(request.number, outcome_of(done)))

        if request.to == DRIVER:
            future = self._here.submit(DRIVER, Lane(request.lane), run_message, request.message)
        else:
            future = self._send(request.to, Lane(request.lane), request.message)
        future.add_done_callback(answer)

    def _lost(self, name: str, remote: Remote) -> None:
        if self._remotes.get(name) is remote:
            del self._remotes[name]
            self._lost_ones[name] = remote

    # --- ending and stopping --------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """See `host.Host.kill`."""
        remote = self._remotes.pop(name, None)
        if remote is not None:
            remote.kill()

    def died(self) -> dict[str, bool]:
        """See `host.Processes.died`."""
        return {name: self._ended_by_itself(name) for name in sorted(self._not_ended_by_us())}

    def _not_ended_by_us(self) -> dict[str, Remote]:
        return self._lost_ones | {name: remote for name, remote in list(self._remotes.items()) if remote.has_ended()}

    def last_words(self) -> str:
        """See `host.Processes.last_words`."""
        told = []
        for name, remote in self._not_ended_by_us().items():
            words = crashes.last_words(remote.process.pid) if remote.process and self._ended_by_itself(name) else ""
            told += [f"{name}:\n{words}"] if words else []
        return "\n".join([*told, *self.history.last_words])

    def _ended_by_itself(self, name: str) -> bool:
        """Whether Ray knows no reason for a death: it kills actors whose transfer failed and cannot be aborted."""
        ray = the_ray()
        try:
            ray.get(self._handles[name].__ray_ready__.remote(), timeout=_LOOK_SECONDS)
        except ray.exceptions.ActorDiedError as death:
            return _NO_REASON in str(death)
        except ray.exceptions.RayError:
            pass
        return False

    def pause(self, name: str) -> bool:
        """See `host.Processes.pause`."""
        process = self._process(name)
        if process is not None:
            process.suspend()
        return process is not None

    def resume(self, name: str) -> None:
        """See `host.Processes.resume`."""
        process = self._process(name)
        if process is not None:
            process.resume()

    def _process(self, name: str) -> psutil.Process | None:
        """None if it is dead or on another machine."""
        remote = self._remotes.get(name)
        return None if remote is None else remote.process

    # --- seen from the side ---------------------------------------------------------------------------------------

    def wait_idle(self, seconds: float) -> bool:
        """See `host.Processes.wait_idle`."""
        return self._come_to_rest(time.monotonic() + seconds) is not None

    def tidy(self, seconds: float) -> bool:
        """See `host.Processes.tidy`."""
        deadline = time.monotonic() + seconds
        names = (DRIVER, *self._remotes)
        wait([self.submit(name, calls.collect_lane(name), calls.collect_what_is_left) for name in names], seconds)
        self.driver.held.clear()
        if self.look("let_go", seconds=seconds) is None:
            return False
        at_rest = self._come_to_rest(deadline)
        return at_rest is not None and all(each.empty for each in at_rest) and self.driver.is_empty()

    def _come_to_rest(self, deadline: float) -> list[AtRest] | None:
        """Wait until nothing is under way anywhere and nothing can come of what was; how the actors stand then."""
        while (left := deadline - time.monotonic()) > 0:
            before = self._count()
            with self._changed:
                if not self._changed.wait_for(lambda: self._unanswered == 0, left):
                    return None
            if not self._here.wait_idle(max(0.0, deadline - time.monotonic())):
                return None
            remotes = dict(self._remotes)
            found = self.look("rest", max(0.0, deadline - time.monotonic()), seconds=seconds_for(deadline))
            if found is None or not all(each.idle for each in found):
                return None
            for remote, each in zip(remotes.values(), found, strict=False):
                remote.channel.wait_processed(each.sent, max(0.0, deadline - time.monotonic()))
            if before == self._count():
                return found
        return None

    def _count(self) -> int:
        with self._changed:
            return self._submitted + self._here.submitted

    def look(self, what: str, *args: Any, seconds: float = _LOOK_SECONDS) -> list[Any] | None:
        """Call a method of every actor's process whatever its lanes do; None if one of them does not answer."""
        ray = the_ray()
        asked = [
            getattr(remote.handle, what).options(concurrency_group=WATCH).remote(*args)
            for remote in list(self._remotes.values())
        ]
        try:
            return ray.get(asked, timeout=seconds)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError):
            return None

    def actors(self) -> list[str]:
        """The actors that are alive."""
        return list(self._remotes)

    def look_at(self, name: str, what: str, *args: Any) -> Any:
        """Call a method of one actor's process whatever its lanes do; None if it does not answer."""
        ray = the_ray()
        remote = self._remotes.get(name)
        if remote is None:
            return None
        try:
            asked = getattr(remote.handle, what).options(concurrency_group=WATCH).remote(*args)
            return ray.get(asked, timeout=_LOOK_SECONDS)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError):
            return None

    def watch(self, *, memory: bool = True) -> Observer:
        """See `host.Processes.watch`."""
        return SpreadWatch(self, self.driver.registry.instances(), memory=memory)

    def stacks(self) -> str:
        """See `host.Processes.stacks`."""
        ray = the_ray()
        parts = [self._here.stacks()]
        for name, remote in list(self._remotes.items()):
            try:
                asked = remote.handle.stacks.options(concurrency_group=WATCH).remote()
                parts.append(ray.get(asked, timeout=_LOOK_SECONDS / 6))
            except ray.exceptions.RayActorError:
                continue  # it has just died, so nothing is stuck in it
            except Exception:
                parts.append(f"{name} does not answer")
        return "\n".join(part for part in parts if part)

    def stop(self) -> None:
        """See `host.Processes.stop`."""
        for name in list(self._remotes):
            self.kill(name)
        if self._groups is not None:
            self._groups.end()  # after that: an actor that is stuck in a transfer would not answer
        self._here.stop()
        thread_errors.stop_listening(self.history.last_words)
        self._answers.put(None)


def seconds_for(deadline: float) -> float:
    """Seconds until a deadline, and a little more for the answer to come."""
    return max(0.0, deadline - time.monotonic()) + 1.0
