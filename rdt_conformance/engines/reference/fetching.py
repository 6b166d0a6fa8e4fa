"""Getting objects into the calling process, one-sided: start every fetch, then wait for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from rdt_conformance import pickling
from rdt_conformance.engines.base import DRIVER, Lane
from rdt_conformance.engines.reference import packing, targets, work
from rdt_conformance.engines.reference.errors import GetTimeoutError, ObjectFetchTimedOutError

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.entry import Entry
    from rdt_conformance.engines.reference.owner import Owner
    from rdt_conformance.engines.reference.work import Created
    from rdt_conformance.engines.reference.worker import Worker


class _Deadline:
    """The nearer of the user's timeout and the system's own."""

    def __init__(self, user: float | None, system: float) -> None:
        self.users = user is not None and 0 <= user < system
        self._seconds = user if user is not None and self.users else system
        self._at = time.monotonic() + self._seconds

    def left(self) -> float:
        """Seconds left, never negative: a fetch that is already complete is worth asking for even when late."""
        return max(0.0, self._at - time.monotonic())

    def passed(self, obj_id: str) -> TimeoutError:
        """The error that tells the two timeouts apart."""
        if self.users:
            return GetTimeoutError(f"get did not complete within {self._seconds:g} s")
        return ObjectFetchTimedOutError(f"fetching {obj_id} did not complete within {self._seconds:g} s")


class Fetcher:
    """Gets for one worker."""

    def __init__(self, worker: Worker, owner: Owner) -> None:
        self._worker = worker
        self._owner = owner

    def get(self, entries: Sequence[Entry], timeout: float | None, *, through_store: bool) -> list[Any]:
        """The objects in order; one asked for twice is fetched once.

        Raises:
            ValueError: the transport is two-sided, or target buffers do not fit.
            GetTimeoutError: `timeout` seconds passed.
            ObjectFetchTimedOutError: the system's own timeout passed.
            Exception: what the producer or the transport raised.
        """
        deadline = _Deadline(timeout, self._worker.settings.fetch_fail_timeout)
        created = {entry.obj_id: self._wait_created(entry, deadline) for entry in entries}
        tensors: dict[str, list[Any]] = {}
        fetches: dict[str, tuple[Entry, Any]] = {}
        for entry in {entry.obj_id: entry for entry in entries}.values():
            if created[entry.obj_id].count == 0:
                tensors[entry.obj_id] = []
            elif self._worker.store.has_primary(entry.obj_id) and not through_store:
                tensors[entry.obj_id] = self._worker.store.primary(entry.obj_id)
            else:
                fetches[entry.obj_id] = (entry, self._start(entry, created[entry.obj_id], through_store))
        while fetches:
            obj_id, (entry, request) = fetches.popitem()
            try:
                tensors[obj_id] = self._finish(entry, request, deadline.left(), through_store)
            except (TimeoutError, FutureTimeout):
                raise deadline.passed(obj_id) from None
        return [packing.put_back(created[entry.obj_id].skeleton, tensors[entry.obj_id]) for entry in entries]

    def _wait_created(self, entry: Entry, deadline: _Deadline) -> Created:
        try:
            return entry.created.result(deadline.left())
        except FutureTimeout:
            if entry.created.done():  # the producer itself raised a TimeoutError
                raise
            raise deadline.passed(entry.obj_id) from None

    def _start(self, entry: Entry, created: Created, through_store: bool) -> Any:
        worker = self._worker
        if through_store and entry.source == DRIVER:
            raise ValueError("what a driver has put cannot be fetched through the object store")
        if through_store:
            return worker.host.submit(entry.source, Lane.SYSTEM, work.read_primary, entry.obj_id)
        if not worker.registry.find(entry.transport).transport_class.is_one_sided():
            raise ValueError(
                f"get needs a one-sided transport, and {entry.transport} is two-sided: get through the object store, "
                "or pass the ref to a task"
            )
        communicator = worker.call(
            entry.transport, "get_communicator_metadata", None, None, entry.transport, obj_id=entry.obj_id
        )
        metadata = work.load(created.metadata)
        buffers = targets.for_fetch(entry, metadata, worker.registry.find(entry.transport).data_type)
        return worker.call(
            entry.transport,
            "fetch_multiple_tensors",
            entry.obj_id,
            metadata,
            communicator,
            buffers,
            obj_id=entry.obj_id,
        )

    def _finish(self, entry: Entry, request: Any, timeout: float, through_store: bool) -> list[Any]:
        if through_store:
            return pickling.loads(request.result(timeout))
        return self._worker.call(entry.transport, "wait_fetch_complete", request, timeout=timeout, obj_id=entry.obj_id)
