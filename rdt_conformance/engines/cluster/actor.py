"""What runs inside the process of an actor."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rdt_conformance import pickling
from rdt_conformance.author import describe
from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.cluster.channel import (
    Answer,
    Channel,
    Hello,
    Kill,
    Request,
    connect,
    dump_outcome,
    outcome_of,
    this_machine,
)
from rdt_conformance.engines.cluster.recorder import SentHistory
from rdt_conformance.engines.cluster.registry import ProcessRegistry
from rdt_conformance.engines.reference import thread_errors
from rdt_conformance.engines.reference.context import inside
from rdt_conformance.engines.reference.handles import ActorHandle, stand_in
from rdt_conformance.engines.reference.lanes import format_stacks, settle
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.history import Recorder
from rdt_conformance.observe import Resources, Watch
from rdt_conformance.payloads import kind_for

GROUPS = {Lane.MAIN: None, Lane.SYSTEM: "_ray_system", Lane.ERROR: "_ray_system_error", Lane.IO: "rdt_io"}
"""Ray's concurrency group for each lane. The first three are Ray's own; no Ray thread of a worker can be borrowed for
the last, so it is one more."""
WATCH = "rdt_watch"
"""The group for looking at a process whatever its lanes are doing."""


@dataclass(frozen=True)
class Orders:
    """What a process needs to know before it belongs to a world."""

    process: str
    address: tuple[str, int]
    secret: bytes
    path: Sequence[str]
    """Where the driver imports from."""
    registration: bytes
    """A pickled `Registration`, by reference where the class can be imported, else by value."""
    by_value: bytes
    """The same by value; empty if that cannot be done."""


@dataclass(frozen=True)
class AtRest:
    """How a process stands."""

    idle: bool
    """Whether its io lane has nothing left to do."""
    sent: int
    """Messages that it has sent through the channel."""
    empty: bool
    """Whether no object is left in it."""


class ActorProcess:
    """One actor of a world. Made a Ray actor by the fleet, and driven by `processes`."""

    def __init__(self, orders: Orders) -> None:
        self._busy: dict[Lane, int] = {}
        self._watch: Watch | None = None
        self._worker: Worker | None = None
        connection = connect(orders.address, orders.secret)
        problem = ""
        try:
            self._registration = _load(orders)
        except Exception as error:
            problem = describe(error)
        else:
            _load_payloads(self._registration)
            _set_up_gpus(self._registration)
        self._channel = Channel(connection, self._answered, _leave)
        self._outside = _Outside(self._channel)
        self._channel.send(Hello(orders.process, os.getpid(), this_machine(), time.perf_counter(), problem))

    def begin(self, name: str, settings: Settings) -> None:
        """Become a worker of a world, with a transport that is yet to be built."""
        history = SentHistory(self._channel)
        thread_errors.listen(history.last_words)  # for as long as the process lives
        self._here = ThreadHost((self._registration,), history, settings, reached_by=self._outside)
        self._outside.here = self._here
        self._outside.name = name
        self._worker = self.make_worker(name, history, settings)
        self._here.add(self._worker, lanes=(Lane.IO,))

    def make_worker(self, name: str, history: Recorder, settings: Settings) -> Worker:
        """A worker of the reference."""
        registry = ProcessRegistry(self._registration)
        registry.show_to_ray()
        return Worker(name, self._outside, registry, history, settings)

    @property
    def worker(self) -> Worker:
        """What this process is in its world."""
        assert self._worker is not None, "not begun"
        return self._worker

    def run(self, lane: str, message: bytes) -> tuple[int, bytes]:
        """Run a message on the calling thread, which is a lane's; how much was sent meanwhile, and the outcome."""
        if lane == Lane.IO:
            return self._run_on_io_lane(message)
        with self._at_work(Lane(lane)), inside(self.worker, Lane(lane)):
            try:
                function, args = pickling.loads(message)
                outcome = dump_outcome(function(self.worker, *args))
            except BaseException as error:
                # The traceback's frames would keep tensors alive for as long as the error is.
                traceback.clear_frames(error.__traceback__)
                outcome = dump_outcome(error=error)
        return self._channel.sent, outcome

    def _run_on_io_lane(self, message: bytes) -> tuple[int, bytes]:
        done = self._here.submit(self._outside.name, Lane.IO, run_message, message)
        outcome = outcome_of(done)  # waits for it
        return self._channel.sent, outcome

    @contextmanager
    def _at_work(self, lane: Lane) -> Iterator[None]:
        self._busy[lane] = threading.get_ident()
        try:
            yield
        finally:
            del self._busy[lane]

    # --- seen from the side ---------------------------------------------------------------------------------------

    def let_go(self) -> None:
        """Forget every kept value."""
        if self._worker is not None:
            self._worker.held.clear()

    def rest(self, seconds: float) -> AtRest:
        """Wait until the io lane has nothing left to do."""
        idle = self._here.wait_idle(seconds)
        return AtRest(idle, self._channel.sent, self._worker is None or self._worker.is_empty())

    def stacks(self) -> str:
        """Where each lane that is inside a message stands right now."""
        return format_stacks({f"{self._outside.name} {lane.value}": ident for lane, ident in self._busy.items()})

    def begin_watch(self, memory: bool) -> None:
        """Count from now on."""
        instances = [] if self._worker is None else self._worker.registry.instances()
        self._watch = Watch(instances, memory=memory)

    def settled(self) -> Resources:
        """Count now; see `Watch.settled`."""
        assert self._watch is not None, "not watching"
        return self._watch.settled()

    def _answered(self, message: Any) -> None:
        assert isinstance(message, Answer), message
        self._outside.answered(message)


class _Outside:
    """How the worker of this process reaches others: through the driver (see `reference.host.Host`)."""

    def __init__(self, channel: Channel) -> None:
        self.name = ""
        self.here: ThreadHost | None = None
        self._channel = channel
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}

    def submit(self, to: str, lane: Lane, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """See `Host.submit`. Only the io lane of this very process is within reach."""
        if to == self.name and lane is Lane.IO:
            assert self.here is not None
            return self.here.submit(to, lane, function, *args)
        future: Future[Any] = Future()
        number = next(self._numbers)
        self._waiting[number] = future
        self._channel.send(Request(number, to, lane.value, pickling.dumps((function, args))))
        return future

    def kill(self, name: str) -> None:
        """See `Host.kill`."""
        self._channel.send(Kill(name))

    def handle(self, name: str) -> ActorHandle | None:
        """See `Host.handle`. Only owners of objects that are passed on need it, and those are drivers here."""
        return stand_in(name)

    def answered(self, answer: Answer) -> None:
        """Resolve what waits for an answer."""
        future = self._waiting.pop(answer.number)
        settle(future, *pickling.loads(answer.outcome))


def run_message(worker: Worker, message: bytes) -> Any:
    """Run a message that another process has sent."""
    function, args = pickling.loads(message)
    return function(worker, *args)


def _load(orders: Orders) -> Registration:
    """The transport, found where the driver finds it, or as it was defined there."""
    sys.path += [entry for entry in orders.path if entry not in sys.path]
    try:
        return pickling.loads(orders.registration)
    except Exception:
        if not orders.by_value:
            raise
        return pickling.loads(orders.by_value)


def _load_payloads(registration: Registration) -> None:
    """Import what tensors are built with, which can take longer than a call may where the machine is busy."""
    with contextlib.suppress(ValueError):  # the author's own kind comes with the first payload
        kind_for(registration.data_type)


def _set_up_gpus(registration: Registration) -> None:
    """Let torch set up the GPUs that this process has: it takes seconds, which are not the transport's."""
    if "cuda" in registration.devices:
        import torch

        torch.empty(1, device="cuda")


def _leave() -> None:
    """The driver has gone, and nothing that this process does matters to anybody."""
    os._exit(0)
