"""The vocabulary of suites, whatever carries it out: a driver, its actors, and the objects they pass.

Two levels. The verbs of RDT (produce, put, consume, get, drop) go through an implementation of RDT, the reference or
Ray's own, exactly as a user's program goes through Ray. The verbs of a transport (extract, communicator, send, recv,
fetch, wait, collect, abort) make one call each, on the lane where Ray makes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rdt_conformance import pickling
from rdt_conformance.engines.base import DRIVER, Lane, Patience, Pending, wait_for
from rdt_conformance.engines.rdt import Rdt, Ref
from rdt_conformance.engines.reference import calls, user_code
from rdt_conformance.engines.reference.host import Processes
from rdt_conformance.engines.reference.schedule import Order, Schedule
from rdt_conformance.history import History
from rdt_conformance.observe import Observer

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.threads import ThreadHost
    from rdt_conformance.payloads.base import Recipe


T = TypeVar("T")

_COMPARING = 6.0
"""How much longer than a transfer the comparison of what arrived may take: that is not the transport's work."""


@dataclass(frozen=True)
class Held:
    """A value that a process keeps: tensors, target buffers, a fetch request. The value never leaves the process."""

    process: Process
    key: int

    def apply(
        self, function: Callable[..., Any], *args: Any, lane: Lane = Lane.MAIN, seconds: float = Patience.own
    ) -> Any:
        """What `function(value, *args)` returns in that process. Function, arguments and result are picklable."""
        what = getattr(function, "__name__", "apply")
        return self.process.run(user_code.apply, self.key, function, args, lane=lane, what=what).result(seconds)

    def differences(self, *payloads: Recipe) -> list[str]:
        """How the kept tensors differ from what was sent; with several payloads, how the kept objects do, in order."""
        seconds = Patience().for_own(_COMPARING * sum(payload.nbytes for payload in payloads))
        if len(payloads) == 1:
            return self.apply(_differences, payloads[0], seconds=seconds)
        return self.apply(_differences_of_each, payloads, seconds=seconds)

    def part(self, index: int) -> Held:
        """One element of a kept list as a value of its own."""
        return self.derive(_part, index)

    def derive(self, function: Callable[..., Any], *args: Any) -> Held:
        """Keep what `function(value, *args)` returns in that process. Function and arguments are picklable."""
        return self.process.keep(user_code.apply, self.key, function, args)

    def drop(self) -> None:
        """Let go of the value now."""
        self.process.run(user_code.forget, self.key, what="drop").result()


class Process:
    """The driver or one actor."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def __repr__(self) -> str:
        return self.name

    @property
    def _transport(self) -> str:
        return self.world.transport

    def run(self, function: Callable[..., Any], *args: Any, lane: Lane = Lane.MAIN, what: str = "") -> Pending[Any]:
        """Run `function(worker, *args)` on one of this process's lanes."""
        future = self.world.host.submit(self.name, lane, function, *args)
        return self._pending(future, what or function.__name__)

    def keep(self, function: Callable[..., Any], *args: Any) -> Held:
        """Run `function(worker, *args)` and keep what it returns here."""
        return Held(self, self.run(_run_and_keep, function, args, what=function.__name__).result(Patience.own))

    def make(self, function: Callable[..., Any], *args: Any, seconds: float = Patience.own) -> Held:
        """Keep what plain `function(*args)` returns when called in this process."""
        return Held(self, self.run(user_code.build_and_keep, function, args, what="build").result(seconds))

    def _pending(self, future: Future[Any], what: str) -> Pending[Any]:
        return Pending(future, f"{what} on {self.name}", self.world.host.stacks, self.world.come_back)

    def _holding(self, pending: Pending[int]) -> Pending[Held]:
        return pending.then(lambda key: Held(self, key))

    def kill(self) -> None:
        """End this process at once."""
        self.world.host.kill(self.name)

    @contextmanager
    def paused(self) -> Iterator[bool]:
        """Stop this process, which notices nothing of it, while the body runs; False if it is out of reach."""
        stopped = self.world.host.pause(self.name)
        try:
            yield stopped
        finally:
            self.world.host.resume(self.name)

    @contextmanager
    def busy(self, seconds: float = 60, lane: Lane = Lane.MAIN) -> Iterator[None]:
        """Keep one of this process's threads, its main thread unless said otherwise, busy while the body runs."""
        sitting = self.run(user_code.sit_still, seconds, lane=lane)
        try:
            yield
        finally:
            self.run(user_code.get_up, lane=Lane.IO).result()
            sitting.result()

    # --- RDT ------------------------------------------------------------------------------------------------------

    def build(self, payload: Recipe, device: str | None = None) -> Held:
        """Tensors that this process has and has not shared yet, on the world's device if no other is named."""
        return self.make(payload.build, device or self.world.device, seconds=Patience().for_own(payload.nbytes))

    def produce(self, what: Recipe | Held | Exception, device: str | None = None) -> Ref:
        """Have a task of this actor return tensors (or raise); the driver owns the object. For `device` see `build`."""
        if isinstance(what, Held):
            function, args = user_code.release, (what.key,)
        elif isinstance(what, Exception):
            function, args = user_code.fail, (what,)
        else:
            function, args = user_code.build, (what, device or self.world.device)
        return self.world.own(self.world.do(self.world.rdt.produce, self.name, function, args))

    def put(self, tensors: Held) -> Pending[Ref]:
        """Put tensors that this process has; this process owns the object, the driver holds the reference."""
        return self._pending(self.world.do(self.world.rdt.put, self.name, tensors.key), "put").then(self.world.own)

    def consume(self, *refs: Ref, **named: Ref) -> Pending[Held]:
        """Pass references to a task of this actor, which keeps the objects; the value is the list of them in order."""
        return self._holding(self._pending(self.world.do(self.world.rdt.consume, self.name, refs, named), "consume"))

    def get(
        self,
        *refs: Ref,
        timeout: float | None = None,
        through_store: bool = False,
        buffers: Held | None = None,
    ) -> Pending[Held]:
        """Get objects into this process; `buffers` holds one list of target buffers per object."""
        key = None if buffers is None else buffers.key
        getting = self.world.do(self.world.rdt.get, self.name, refs, timeout, through_store=through_store, buffers=key)
        return self._holding(self._pending(getting, "get"))

    def get_onto(self, ref: Ref, device: str, timeout: float | None = None) -> Pending[Held]:
        """Get an object onto a device, in the driver."""
        return self._holding(self._pending(self.world.rdt.get_onto(ref, device, timeout), "get"))

    def wait_freed(self, tensors: Held, timeout: float) -> Pending[None]:
        """Wait until no object holds the first of `tensors` any more."""
        return self._pending(self.world.rdt.wait_freed(self.name, tensors.key, timeout), "wait until freed")

    def metadata_of(self, ref: Ref) -> Pending[bytes]:
        """The pickled metadata of an object that this process, the driver, owns, once the object exists."""
        return self._pending(self.world.rdt.metadata_of(ref), "creating the object")

    def replace_metadata(self, ref: Ref, metadata: bytes) -> Pending[None]:
        """Have this process, the driver, hand out other metadata for an object that it owns."""
        return self._pending(self.world.rdt.replace_metadata(ref, metadata), "replacing metadata")

    # --- single transport calls -----------------------------------------------------------------------------------

    def extract(self, obj_id: str, tensors: Held, *, lane: Lane = Lane.MAIN) -> Pending[bytes]:
        """extract_tensor_transport_metadata; brings back the pickled metadata."""
        return self.run(calls.extract, self._transport, obj_id, tensors.key, lane=lane)

    def communicator(
        self, source: Process | None, destination: Process | None, *, lane: Lane = Lane.MAIN
    ) -> Pending[bytes]:
        """get_communicator_metadata; brings back the pickled metadata."""
        names = (source and source.name, destination and destination.name)
        return self.run(calls.communicator, self._transport, *names, lane=lane)

    def has_transport(self, actor: Process, *, lane: Lane = Lane.MAIN) -> Pending[bool]:
        """actor_has_tensor_transport of another process."""
        return self.run(calls.has_transport, self._transport, actor.name, lane=lane)

    def send(
        self, obj_id: str, tensors: Held, metadata: bytes, comm: bytes, *, lane: Lane = Lane.SYSTEM
    ) -> Pending[None]:
        """send_multiple_tensors."""
        return self.run(calls.send, self._transport, obj_id, tensors.key, metadata, comm, lane=lane)

    def recv(
        self, obj_id: str, metadata: bytes, comm: bytes, buffers: Held | None = None, *, lane: Lane = Lane.SYSTEM
    ) -> Pending[Held]:
        """recv_multiple_tensors; keeps the tensors."""
        key = None if buffers is None else buffers.key
        return self._holding(self.run(calls.recv, self._transport, obj_id, metadata, comm, key, lane=lane))

    def fetch(
        self, obj_id: str, metadata: bytes, comm: bytes, buffers: Held | None = None, *, lane: Lane = Lane.MAIN
    ) -> Pending[Held]:
        """fetch_multiple_tensors; keeps the request."""
        key = None if buffers is None else buffers.key
        return self._holding(self.run(calls.fetch, self._transport, obj_id, metadata, comm, key, lane=lane))

    def wait(self, obj_id: str, request: Held, timeout: float = -1, *, lane: Lane = Lane.MAIN) -> Pending[Held]:
        """wait_fetch_complete; keeps the tensors."""
        return self._holding(self.run(calls.wait, self._transport, obj_id, request.key, timeout, lane=lane))

    def collect(self, obj_id: str, metadata: bytes, tensors: Held, *, lane: Lane = Lane.SYSTEM) -> Pending[None]:
        """garbage_collect."""
        return self.run(calls.collect, self._transport, obj_id, metadata, tensors.key, lane=lane)

    def abort(self, obj_id: str, comm: bytes, *, lane: Lane = Lane.ERROR) -> Pending[None]:
        """abort_transport."""
        return self.run(calls.abort, self._transport, obj_id, comm, lane=lane)

    def ask(self, method: str, *args: Any, lane: Lane = Lane.SYSTEM) -> Pending[Any]:
        """Any other method of the transport."""
        return self.run(calls.ask, self._transport, method, args, lane=lane, what=method)


class World:
    """A driver and its actors, with the transport under test registered.

    Args:
        host: the processes that it consists of; the world ends them when it is closed.
        rdt: what carries objects between them.
        transport: the name of the transport under test.
        first_use: what each new actor shares and frees before it is handed out. Ray asks `actor_has_tensor_transport`
            before an actor's first task, so there too a transport has been touched, by one thread, before several
            come to it at once. None hands out actors that have never used theirs.
        threads: the host, if all processes are threads of this one.
        device: the type of device that tensors are made on unless something else is said.
    """

    def __init__(
        self,
        host: Processes,
        rdt: Rdt,
        transport: str,
        first_use: Recipe | None = None,
        threads: ThreadHost | None = None,
        device: str = "cpu",
    ) -> None:
        self.host, self.rdt, self.transport, self.device = host, rdt, transport, device
        self.first_use = first_use
        self._threads = threads
        self.driver = Process(self, DRIVER)
        self._actors: list[Process] = []
        self._refs: weakref.WeakSet[Ref] = weakref.WeakSet()
        self._schedule: Schedule | None = None

    @property
    def history(self) -> History:
        """What happened, in all processes."""
        return self.host.history

    def actors(self, count: int) -> list[Process]:
        """`count` actors; those that are already there first."""
        there = len(self._actors)
        if there < count:
            names = [f"actor{number}" for number in range(there + 1, max(count, self.host.at_least) + 1)]
            self.host.expect(names)
            for name in names:
                self.host.start(name)
                self._actors.append(Process(self, name))
            self.host.introduce()
            for actor in self._actors[there:]:
                self._use_first(actor)
        return self._actors[:count]

    def _use_first(self, actor: Process) -> None:
        """Have the actor use its transport once. Whether that works is for the checks to say, not for us."""
        if self.first_use is None:
            return
        ref = actor.produce(self.first_use)
        self.host.submit(actor.name, Lane.MAIN, user_code.nothing).exception(Patience.call * 3)
        ref.drop()
        self.come_to_rest()
        self.history.clear()

    def restart(self, actor: Process) -> None:
        """Start a killed actor again, empty, under its old name."""
        self.host.start(actor.name)
        self.history.note_new(actor.name)

    def own(self, ref: Ref) -> Ref:
        """Remember a reference of the driver, so that `reset` can drop it."""
        self._refs.add(ref)
        return ref

    def new_object_id(self, *, put: bool = False) -> str:
        """An object id as Ray would give it, for single transport calls."""
        return self.host.driver.new_object_id(put=put)

    def loads(self, metadata: bytes) -> Any:
        """Unpickle metadata in the driver, to look at."""
        return pickling.loads(metadata)

    @contextmanager
    def in_order(self, order: Order, folders: tuple[str, ...]) -> Iterator[None]:
        """While the body runs, let lanes go on one at a time, whenever it waits for something and only then.

        Only where all lanes are threads of this process.

        Args:
            order: who goes on.
            folders: where the transport's own code lies.
        """
        assert self._threads is not None, "no lane of another process can be told when to go on"
        self._schedule = Schedule(order, folders, self.history, self._threads)
        self._threads.take_turns(self._schedule.turn)
        try:
            yield
        finally:
            self._threads.take_turns(nullcontext)
            self._schedule.end()
            self._schedule = None

    def do(self, verb: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call one of the verbs of `rdt`.

        Where lanes go on one at a time, on a thread of its own: one that has to wait may be in its way.
        """
        if self._schedule is None:
            return verb(*args, **options)
        done = self._schedule.verbs.run(partial(verb, *args, **options))
        return Pending(done, verb.__name__, self.stacks, self.come_back).result()

    def come_back(self, future: Future[Any], seconds: float) -> bool:
        """Wait up to `seconds` for a future to be done; whether it is."""
        if self._schedule is not None:
            return self._schedule.run(future.done, seconds)
        return wait_for(future, seconds)

    def come_to_rest(self, seconds: float = Patience.call) -> bool:
        """Wait until nothing is under way any more; whether that came true."""
        return self.rdt.settle(seconds) and self.host.wait_idle(seconds)

    def reset(self, seconds: float = Patience.call) -> bool:
        """Drop every reference and kept value, and wait until everything has been freed.

        Returns whether that came true: a world where it did not is not fit for another example.
        """
        for ref in list(self._refs):
            ref.drop()
        return self.host.tidy(seconds) and self.rdt.tidy(seconds)

    def died(self) -> dict[str, bool]:
        """The actors that have ended although we did not end them; True: nor did Ray, so it was by themselves."""
        return self.host.died()

    def last_words(self) -> str:
        """What the actors, or threads, that have ended by themselves wrote as they did."""
        return self.host.last_words()

    def watch(self, *, memory: bool = True) -> Observer:
        """Begin to watch what all processes hold."""
        return self.host.watch(memory=memory)

    def stacks(self) -> str:
        """Where everything that is under way stands right now."""
        return self.host.stacks()

    def close(self) -> None:
        """End every process, or what stands for one."""
        self.host.stop()


def _run_and_keep(worker: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    return worker.keep(function(worker, *args))


def _part(value: Any, index: int) -> Any:
    return value[index]


def _differences(value: Any, payload: Recipe) -> list[str]:
    # A consumed or gotten object comes as a list of objects, a received one as a list of tensors.
    of_one_object = isinstance(value, list) and len(value) == 1 and isinstance(value[0], list)
    tensors = value[0] if of_one_object else value
    return payload.differences(tensors)


def _differences_of_each(values: Any, payloads: tuple[Recipe, ...]) -> list[str]:
    if len(values) != len(payloads):
        return [f"{len(values)} objects arrived where {len(payloads)} were sent"]
    return [
        f"object {number}: {difference}"
        for number, (tensors, payload) in enumerate(zip(values, payloads, strict=True), 1)
        for difference in payload.differences(tensors)
    ]
