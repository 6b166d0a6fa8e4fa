"""The owner's side of RDT: what it knows about each object, when tensors move, and when they are freed."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from rdt_conformance import pickling
from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference import refs, work
from rdt_conformance.engines.reference.dispatch import Dispatcher
from rdt_conformance.engines.reference.entry import Entry
from rdt_conformance.engines.reference.errors import needs_ray
from rdt_conformance.engines.reference.fetching import Fetcher
from rdt_conformance.engines.reference.monitor import Monitor, Transfer
from rdt_conformance.engines.reference.refs import Loan, Ref
from rdt_conformance.engines.reference.work import Created, Passed, Task

if TYPE_CHECKING:
    from rdt_conformance.engines.rdt import Ref as AnyRef
    from rdt_conformance.engines.reference.worker import Worker


class Owner:
    """The objects known to one worker. Callers may be user code or the io lane, hence the lock."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._dispatcher = Dispatcher(worker)
        self._monitor = Monitor(worker)
        self._fetcher = Fetcher(worker, self)

    # --- creating -------------------------------------------------------------------------------------------------

    def call_task(
        self,
        actor: str,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Future[Any]:
        """Run `function(worker, *args, **kwargs)` on an actor and bring its result back by value.

        Refs among the arguments, positional or keyword, arrive as the objects they stand for.
        """
        task_done = self._submit(actor, function, args, kwargs or {}, obj_id="", transport=None)
        result: Future[Any] = Future()
        # Unpickled on a lane of this worker, since refs in the result become refs of this worker.
        task_done.add_done_callback(
            lambda done: self._worker.host.submit(self._worker.name, Lane.IO, _deliver, done, result)
        )
        return result

    def create_by_task(
        self,
        actor: str,
        function: Callable[..., Any],
        transport: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Ref:
        """Run a task whose result stays on its actor as an RDT object owned by this worker.

        The task is not run if the actor does not have the transport; whoever uses the object learns why.
        """
        obj_id = self._worker.new_object_id(put=False)
        ref = self._own(obj_id, actor, transport)
        problem = self._why_without_transport(actor, transport)
        if problem is not None:
            self._entries[obj_id].created.set_exception(problem)
            return ref
        task_done = self._submit(actor, function, args, kwargs or {}, obj_id=obj_id, transport=transport)
        task_done.add_done_callback(
            lambda done: self._worker.host.submit(self._worker.name, Lane.IO, _on_created, obj_id, done)
        )
        return ref

    def _why_without_transport(self, actor: str, transport: str) -> Exception | None:
        """Ask the transport whether an actor has it, which Ray does before every task that returns an RDT object."""
        try:
            handle = self._worker.host.handle(actor)
            if self._worker.call(transport, "actor_has_tensor_transport", handle):
                return None
        except Exception as error:
            return None if needs_ray(error) else error  # how Ray answers it is for the engines that have one
        return ValueError(f"{actor} does not have transport {transport}")

    def put(self, value: Any, transport: str) -> Ref:
        """Make an RDT object of `value` in this very process.

        Raises:
            ValueError: the transport is two-sided, which cannot be received by a get.
        """
        if not self._worker.registry.find(transport).transport_class.is_one_sided():
            raise ValueError(f"put needs a one-sided transport, and {transport} is two-sided")
        obj_id = self._worker.new_object_id(put=True)
        created = work.create(self._worker, obj_id, value, transport, only_tensors=True)
        ref = self._own(obj_id, self._worker.name, transport)
        self._entries[obj_id].created.set_result(created)
        return ref

    def _own(self, obj_id: str, source: str, transport: str) -> Ref:
        with self._lock:
            self._entries[obj_id] = Entry(obj_id, self._worker.name, source, transport, handles=1)
        return Ref(self._worker, obj_id, transport)

    def on_created(self, obj_id: str, done: Future[Created]) -> None:
        """The source has answered: start the transfers that waited for the object, or free it if nobody wants it."""
        with self._lock:
            entry = self._entries[obj_id]
            error = done.exception()
            if error is not None:
                entry.created.set_exception(error)
            else:
                entry.created.set_result(done.result())
            waiting, entry.waiting = entry.waiting, []
        if error is None:
            for destination in waiting:
                self._transfer(entry, destination)
        self._free_if_unused(entry)

    # --- passing --------------------------------------------------------------------------------------------------

    def _submit(
        self,
        actor: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        obj_id: str,
        transport: str | None,
    ) -> Future[Any]:
        """Queue a task behind earlier ones to the same actor; it starts when all refs among its arguments exist."""
        arguments = [*args, *kwargs.values()]
        passed = {ref.obj_id: self._entries[ref.obj_id] for ref in arguments if isinstance(ref, Ref)}
        for entry in passed.values():
            with self._lock:
                entry.handles += 1  # the task's own, until it has ended
            self._pass_to(entry, actor)

        def freeze(argument: Any) -> bytes | Passed:
            if isinstance(argument, Ref):
                entry = passed[argument.obj_id]
                made = entry.created.result(0)
                return Passed(argument.obj_id, made.skeleton, made.count) if entry.travels else made.skeleton
            return pickling.dumps(argument)

        # Values are frozen now, so that a caller may change them; refs once they exist.
        frozen = [argument if isinstance(argument, Ref) else freeze(argument) for argument in args]
        frozen_kwargs = {k: v if isinstance(v, Ref) else freeze(v) for k, v in kwargs.items()}

        def make_task() -> Task:
            return Task(
                function,
                [freeze(argument) if isinstance(argument, Ref) else argument for argument in frozen],
                {k: freeze(v) if isinstance(v, Ref) else v for k, v in frozen_kwargs.items()},
                obj_id,
                transport,
            )

        worker, still_travelling = self._worker, set[str]()

        def drop(used: str) -> None:
            worker.host.submit(worker.name, Lane.IO, refs.drop_handle, used)

        def not_sent() -> None:
            for entry in passed.values():
                if entry.travels and actor != entry.source:
                    still_travelling.add(entry.obj_id)
                    discarded = worker.host.submit(actor, Lane.SYSTEM, work.discard, entry.obj_id)
                    discarded.add_done_callback(lambda _, used=entry.obj_id: drop(used))

        needs = [entry.created for entry in passed.values()]
        task_done = self._dispatcher.submit(actor, needs, make_task, not_sent)
        for used in passed:
            task_done.add_done_callback(lambda _, used=used: used in still_travelling or drop(used))
        return task_done

    def _pass_to(self, entry: Entry, destination: str) -> None:
        """Move the object's tensors to `destination`, now or as soon as the object exists."""
        with self._lock:
            if not entry.created.done():
                entry.waiting.append(destination)
                return
            if not entry.travels:
                return  # the consumer gets the producer's error instead, or the value itself
        self._transfer(entry, destination)

    def _transfer(self, entry: Entry, destination: str) -> None:
        """Submit the two halves of a transfer in one global order, and watch them."""
        worker, created = self._worker, entry.created.result(0)
        with self._lock:
            entry.sent_to.add(destination)
            self._warn_if_shared(entry)
            if destination == entry.source:
                return  # passed by reference, inside the process
            try:
                communicator = self._communicator(entry, destination)
            except Exception as error:
                worker.host.submit(destination, Lane.SYSTEM, work.fail, entry.obj_id, error)
                return
            message = (entry.obj_id, created.metadata, communicator, entry.transport)
            sent = None
            if not self._one_sided(entry.transport):
                sent = worker.host.submit(entry.source, Lane.SYSTEM, work.send, *message)
            received = worker.host.submit(destination, Lane.SYSTEM, work.receive, *message)
        self._monitor.watch(
            Transfer(entry.obj_id, entry.transport, entry.source, destination, communicator), sent, received
        )

    def _communicator(self, entry: Entry, destination: str) -> bytes:
        host = self._worker.host
        return work.dump(
            self._worker.call(
                entry.transport,
                "get_communicator_metadata",
                host.handle(entry.source),
                host.handle(destination),
                entry.transport,
                obj_id=entry.obj_id,
            )
        )

    def _one_sided(self, transport: str) -> bool:
        return self._worker.registry.find(transport).transport_class.is_one_sided()

    def _warn_if_shared(self, entry: Entry) -> None:
        if not entry.warned and entry.source in entry.sent_to and len(entry.sent_to) > 1:
            entry.warned = True
            warnings.warn(
                f"object {entry.obj_id} goes back to {entry.source}, which made it, as well as to others: it is passed "
                "there by reference, so a change made in place is seen by later receivers",
                UserWarning,
                stacklevel=2,
            )

    # --- getting --------------------------------------------------------------------------------------------------

    def get(self, wanted: Sequence[Ref], timeout: float | None = None, *, through_store: bool = False) -> list[Any]:
        """The objects, in this process: all fetches first, then the waits. See `fetching.Fetcher.get`."""
        return self._fetcher.get([self.entry(ref) for ref in wanted], timeout, through_store=through_store)

    def hold(self, wanted: Sequence[AnyRef]) -> Callable[[], None]:
        """Keep objects alive, as the caller of a get does, until what is returned is called."""
        with self._lock:
            held = [ref.obj_id for ref in wanted if ref.obj_id in self._entries]
            for obj_id in held:
                self._entries[obj_id].handles += 1

        def let_go() -> None:
            for obj_id in held:
                self._worker.host.submit(self._worker.name, Lane.IO, refs.drop_handle, obj_id)

        return let_go

    def set_target_buffers(self, ref: Ref, buffers: Sequence[Any]) -> None:
        """Let gets of `ref` in this process write into `buffers`, which the caller keeps alive."""
        entry = self.entry(ref)
        entry.target_buffers = [weakref.ref(buffer) for buffer in buffers]
        entry.target_device = None

    def set_target_device(self, ref: Ref, device: str) -> None:
        """Let gets of `ref` in this process land on `device`.

        Raises:
            ValueError: the transport is not registered for that device type.
        """
        entry = self.entry(ref)
        if device.split(":")[0] not in self._worker.registry.find(entry.transport).devices:
            raise ValueError(f"transport {entry.transport} cannot fetch onto {device}")
        entry.target_buffers = None
        entry.target_device = device

    def entry(self, ref: AnyRef) -> Entry:
        """What is known about a ref's object.

        Raises:
            KeyError: the ref was dropped.
        """
        with self._lock:
            return self._entries[ref.obj_id]

    def known(self) -> list[str]:
        """The ids of all objects owned or borrowed here, for checks and tests."""
        with self._lock:
            return list(self._entries)

    # --- counting and freeing -------------------------------------------------------------------------------------

    def lend(self, obj_id: str) -> Loan:
        """Put a reference on its way: it is being pickled. Waits until the object exists, since the loan describes it.

        Raises:
            TimeoutError: the object does not come to exist.
        """
        timeout = self._worker.settings.fetch_fail_timeout
        entry = self._entries[obj_id]
        created = entry.created.exception(timeout) or entry.created.result()
        if entry.owner == self._worker.name:
            self.note_lent(obj_id)
        else:
            self._worker.host.submit(entry.owner, Lane.IO, refs.on_lent, obj_id).result(timeout)
        return Loan(obj_id, entry.owner, entry.source, entry.transport, created)

    def borrow(self, loan: Loan) -> Ref:
        """A lent reference has arrived here."""
        with self._lock:
            entry = self._entries.get(loan.obj_id)
            first = entry is None
            if entry is None:
                entry = self._entries[loan.obj_id] = Entry(loan.obj_id, loan.owner, loan.source, loan.transport)
                if isinstance(loan.created, BaseException):
                    entry.created.set_exception(loan.created)
                else:
                    entry.created.set_result(loan.created)
            entry.handles += 1
        # Only a worker's first handle makes it a borrower; the owner itself never is one.
        message = refs.on_borrowed if first else refs.on_loan_ended
        self._worker.host.submit(loan.owner, Lane.IO, message, loan.obj_id)
        return Ref(self._worker, loan.obj_id, loan.transport)

    def note_lent(self, obj_id: str) -> None:
        """Owner: one more reference is on its way."""
        with self._lock:
            self._entries[obj_id].loans += 1

    def note_borrowed(self, obj_id: str) -> None:
        """Owner: a loan arrived in a worker that held none."""
        with self._lock:
            self._entries[obj_id].borrowers += 1
        self.note_loan_ended(obj_id)

    def note_loan_ended(self, obj_id: str) -> None:
        """Owner: a loan arrived where the object was known already."""
        with self._lock:
            entry = self._entries[obj_id]
            entry.loans -= 1
        self._free_if_unused(entry)

    def note_returned(self, obj_id: str) -> None:
        """Owner: a borrower has dropped its last reference."""
        with self._lock:
            entry = self._entries[obj_id]
            entry.borrowers -= 1
        self._free_if_unused(entry)

    def drop_handle(self, obj_id: str) -> None:
        """One reference of this worker is gone."""
        with self._lock:
            entry = self._entries[obj_id]
            entry.handles -= 1
            if entry.owner != self._worker.name and not entry.handles:
                del self._entries[obj_id]
                self._worker.host.submit(entry.owner, Lane.IO, refs.on_returned, obj_id)
                return
        self._free_if_unused(entry)

    def _free_if_unused(self, entry: Entry) -> None:
        """Free an owned object that nobody refers to. One that does not exist yet is freed when it does."""
        with self._lock:
            if entry.owner != self._worker.name or entry.in_use or not entry.created.done():
                return
            if self._entries.pop(entry.obj_id, None) is None:
                return
        if not entry.travels:
            return
        message = (entry.obj_id, entry.transport, entry.created.result(0).metadata)
        if entry.source == self._worker.name and self._worker.is_driver:
            work.free(self._worker, *message)  # the driver has no system lane
        else:
            self._worker.host.submit(entry.source, Lane.SYSTEM, work.free, *message)

    def pump(self, actor: str) -> None:
        """Send on tasks to `actor` that have become ready."""
        self._dispatcher.pump(actor)

    def stop(self) -> None:
        """End the monitor thread."""
        self._monitor.stop()


def _on_created(worker: Worker, obj_id: str, done: Future[Created]) -> None:
    worker.owner.on_created(obj_id, done)


def _deliver(worker: Worker, done: Future[Any], result: Future[Any]) -> None:
    try:
        result.set_result(pickling.loads(done.result()))
    except BaseException as error:
        result.set_exception(error)
