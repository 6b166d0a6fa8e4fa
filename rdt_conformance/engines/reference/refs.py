"""References to objects. While one is alive anywhere, the object stays."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.context import current_worker

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.work import Created
    from rdt_conformance.engines.reference.worker import Worker


class Ref:
    """A counted reference, held in one worker.

    Dropping the last reference frees the object. That may happen on any thread and inside any lock, since Python calls
    finalizers where it likes; so a drop only leaves a message on the worker's io lane.
    """

    def __init__(self, worker: Worker, obj_id: str, transport: str) -> None:
        self.obj_id = obj_id
        self.transport = transport
        self._worker = worker
        self._finalizer = weakref.finalize(self, worker.host.submit, worker.name, Lane.IO, drop_handle, obj_id)
        self._finalizer.atexit = False

    @property
    def holder(self) -> str:
        """The worker that holds this reference."""
        return self._worker.name

    def drop(self) -> None:
        """Let go of the object now; the reference must not be used afterwards."""
        self._finalizer()

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self._worker.owner.lend(self.obj_id),)

    def __repr__(self) -> str:
        return f"Ref({self.obj_id[:8]}…{self.obj_id[-8:]})"


@dataclass(frozen=True)
class Loan:
    """A reference on its way to another worker. The owner keeps the object until it has arrived."""

    obj_id: str
    owner: str
    source: str
    transport: str
    created: Created | BaseException
    """What the source made, or the error that it raised instead."""


def _arrive(loan: Loan) -> Ref:
    return current_worker().owner.borrow(loan)


def drop_handle(worker: Worker, obj_id: str) -> None:
    """Message: one reference of this worker is gone."""
    worker.owner.drop_handle(obj_id)


def on_lent(worker: Worker, obj_id: str) -> None:
    """Message to the owner: some worker has put a reference on its way."""
    worker.owner.note_lent(obj_id)


def on_borrowed(worker: Worker, obj_id: str) -> None:
    """Message to the owner: the reference arrived, and the loan is now a borrower."""
    worker.owner.note_borrowed(obj_id)


def on_returned(worker: Worker, obj_id: str) -> None:
    """Message to the owner: a borrower has dropped its last reference."""
    worker.owner.note_returned(obj_id)


def on_loan_ended(worker: Worker, obj_id: str) -> None:
    """Message to the owner: the reference arrived where the object was known already."""
    worker.owner.note_loan_ended(obj_id)
