"""The vocabulary of suites, carried out by the reference RDT: a driver, its actors, and the objects they pass.

Two levels. The verbs of RDT (produce, put, consume, get, drop) go through the reference exactly as a user's program
goes through Ray. The verbs of a transport (extract, communicator, send, recv, fetch, wait, collect, abort) make one
call each, on the lane where Ray makes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rdt_conformance import pickling
from rdt_conformance.engines.base import Lane, Patience, Pending
from rdt_conformance.engines.reference import calls, user_code
from rdt_conformance.engines.reference.refs import Ref
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import AS_IN_RAY, DRIVER, Settings
from rdt_conformance.history import History

if TYPE_CHECKING:
    from rdt_conformance.payloads.base import Recipe


@dataclass(frozen=True)
class Held:
    """A value that a process keeps: tensors, target buffers, a fetch request. The value never leaves the process."""

    process: Process
    key: int

    def apply(
        self, function: Callable[..., Any], *args: Any, lane: Lane = Lane.MAIN, seconds: float = Patience.call
    ) -> Any:
        """What `function(value, *args)` returns in that process. Function, arguments and result are picklable."""
        what = getattr(function, "__name__", "apply")
        return self.process.run(user_code.apply, self.key, function, args, lane=lane, what=what).result(seconds)

    def differences(self, *payloads: Recipe) -> list[str]:
        """How the kept tensors differ from what was sent; with several payloads, how the kept objects do, in order."""
        seconds = Patience().for_bytes(sum(payload.nbytes for payload in payloads))
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
        return Held(self, self.run(_run_and_keep, function, args, what=function.__name__).result())

    def make(self, function: Callable[..., Any], *args: Any, seconds: float = Patience.call) -> Held:
        """Keep what plain `function(*args)` returns when called in this process."""
        return Held(self, self.run(user_code.build_and_keep, function, args, what="build").result(seconds))

    def _pending(self, future: Future[Any], what: str) -> Pending[Any]:
        return Pending(future, f"{what} on {self.name}", self.world.host.stacks)

    def _holding(self, pending: Pending[int]) -> Pending[Held]:
        return pending.then(lambda key: Held(self, key))

    def kill(self) -> None:
        """End this process at once."""
        self.world.host.kill(self.name)

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

    def build(self, payload: Recipe, device: str = "cpu") -> Held:
        """Tensors that this process has and has not shared yet."""
        return self.make(payload.build, device, seconds=Patience().for_bytes(payload.nbytes))

    def produce(self, what: Recipe | Held | Exception, device: str = "cpu") -> Ref:
        """Have a task of this actor return tensors (or raise); the driver owns the object."""
        if isinstance(what, Held):
            function, args = user_code.release, (what.key,)
        elif isinstance(what, Exception):
            function, args = user_code.fail, (what,)
        else:
            function, args = user_code.build, (what, device)
        return self.world.own(self.world.driver_owner.create_by_task(self.name, function, self._transport, args))

    def put(self, tensors: Held) -> Pending[Ref]:
        """Put tensors that this process has; this process owns the object, the driver holds the reference."""
        if self.name == DRIVER:
            return self.run(user_code.put, tensors.key, self._transport).then(self.world.own)
        future = self.world.driver_owner.call_task(self.name, user_code.put, (tensors.key, self._transport))
        return self._pending(future, "put").then(self.world.own)

    def consume(self, *refs: Ref, **named: Ref) -> Pending[Held]:
        """Pass references to a task of this actor, which keeps the objects; the value is the list of them in order."""
        future = self.world.driver_owner.call_task(self.name, user_code.keep, refs, named)
        return self._holding(self._pending(future, "consume"))

    def get(
        self,
        *refs: Ref,
        timeout: float | None = None,
        through_store: bool = False,
        buffers: Held | None = None,
    ) -> Pending[Held]:
        """Get objects into this process; `buffers` holds one list of target buffers per object."""
        key = None if buffers is None else buffers.key
        args = (list(refs), timeout, through_store, key)
        if self.name == DRIVER:
            return self._holding(self.run(user_code.get, *args))
        return self._holding(self._pending(self.world.driver_owner.call_task(self.name, user_code.get, args), "get"))

    def get_onto(self, ref: Ref, device: str, timeout: float | None = None) -> Pending[Held]:
        """Get an object onto a device, in the driver."""
        return self._holding(self.run(user_code.get_onto, ref, device, timeout))

    def wait_freed(self, tensors: Held, timeout: float) -> Pending[None]:
        """Wait until no object holds the first of `tensors` any more."""
        return self.run(user_code.wait_freed, tensors.key, timeout)

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

    def transport(self) -> Any:
        """The transport instance of this process, for observers that look at it from the side."""
        return self.run(user_code.transport_instance, self._transport).result(Patience.call * 3)


class World:
    """A driver and its actors, all in this process, with the transport under test registered.

    Args:
        registration: the transport under test.
        settings: what Ray would read from its environment.
        first_use: what each new actor shares and frees before it is handed out. Ray asks `actor_has_tensor_transport`
            before an actor's first task, so there too a transport has been touched, by one thread, before several
            come to it at once. None hands out actors that have never used theirs.
    """

    def __init__(
        self, registration: Registration, settings: Settings = AS_IN_RAY, first_use: Recipe | None = None
    ) -> None:
        self._first_use = first_use
        self.transport = registration.name
        self.history = History()
        self.host = ThreadHost((registration,), self.history, settings)
        self.driver_owner = self.host.start(DRIVER).owner
        self.driver = Process(self, DRIVER)
        self._actors: list[Process] = []
        self._refs: weakref.WeakSet[Ref] = weakref.WeakSet()

    def actors(self, count: int) -> list[Process]:
        """`count` actors; those that are already there first."""
        while len(self._actors) < count:
            name = f"actor{len(self._actors) + 1}"
            self.host.start(name)
            self._actors.append(Process(self, name))
            self._use_first(self._actors[-1])
        return self._actors[:count]

    def _use_first(self, actor: Process) -> None:
        """Have the actor use its transport once. Whether that works is for the checks to say, not for us."""
        if self._first_use is None:
            return
        ref = actor.produce(self._first_use)
        self.host.submit(actor.name, Lane.MAIN, user_code.nothing).exception(Patience.call * 3)
        ref.drop()
        self.host.wait_idle(Patience.call)
        self.history.clear()

    def restart(self, actor: Process) -> None:
        """Start a killed actor again, empty, under its old name."""
        self.host.start(actor.name)

    def own(self, ref: Ref) -> Ref:
        """Remember a reference of the driver, so that `reset` can drop it."""
        self._refs.add(ref)
        return ref

    def new_object_id(self, *, put: bool = False) -> str:
        """An object id as Ray would give it, for single transport calls."""
        return self.host.workers[DRIVER].new_object_id(put=put)

    def loads(self, metadata: bytes) -> Any:
        """Unpickle metadata in the driver, to look at."""
        return pickling.loads(metadata)

    def reset(self, seconds: float = Patience.call) -> bool:
        """Drop every reference and kept value, and wait until everything has been freed.

        Returns whether that came true: a world where it did not is not fit for another example.
        """
        for ref in list(self._refs):
            ref.drop()
        for worker in list(self.host.workers.values()):
            worker.held.clear()
        idle = self.host.wait_idle(seconds)
        workers = list(self.host.workers.values())
        return idle and not any(worker.owner.known() or worker.store.objects() for worker in workers)

    def transports(self) -> Iterable[Any]:
        """Every transport instance built so far."""
        for worker in list(self.host.workers.values()):
            instance = worker.registry.built(self.transport)
            if instance is not None:
                yield instance

    def close(self) -> None:
        """End every thread that can end."""
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
