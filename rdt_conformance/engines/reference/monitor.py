"""What happens when a transfer fails or takes too long: both halves are interrupted, or their actors are killed."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rdt_conformance import pickling
from rdt_conformance.engines.base import DRIVER, Lane
from rdt_conformance.engines.reference import work
from rdt_conformance.engines.reference.errors import ActorDiedError
from rdt_conformance.engines.reference.waiting import ClockThread

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transfer:
    """One transfer from a source to a destination."""

    obj_id: str
    transport: str
    source: str
    destination: str
    communicator: bytes


class Monitor:
    """Watches the transfers of one owner. An error in either half, or the deadline, ends both."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._numbers = itertools.count()
        self._watched: dict[int, Transfer] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf
        """When the thread looks at deadlines again if nobody wakes it."""
        self._stopped = False

    def watch(self, transfer: Transfer, sent: Future[Any] | None, received: Future[Any]) -> None:
        """Follow the two halves of a transfer; `sent` is None for one-sided transports.

        A one-sided receive that raises has ended by that, and nobody else is blocked: there is nothing to interrupt.
        """
        halves = [half for half in (sent, received) if half is not None]
        number = next(self._numbers)
        with self._changed:
            self._watched[number] = transfer
            deadline = time.monotonic() + self._worker.settings.fetch_fail_timeout
            heapq.heappush(self._deadlines, (deadline, number))
            if self._thread is None:
                self._thread = ClockThread(target=self._watch_deadlines, name="rdt-monitor", daemon=True)
                self._thread.start()
            if deadline < self._wakes_at:
                self._changed.notify()
        left = itertools.count(len(halves) - 1, -1)

        def half_done(half: Future[Any]) -> None:
            error = half.exception()
            if error is not None and (sent is not None or isinstance(error, ActorDiedError)):
                self._fail(number, error)
            elif next(left) == 0:
                with self._changed:
                    self._watched.pop(number, None)
                    self._forget_the_ended()

        for half in halves:
            half.add_done_callback(half_done)

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _watch_deadlines(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and not self._due():
                    self._wakes_at = self._deadlines[0][0] if self._deadlines else math.inf
                    left = self._wakes_at - time.monotonic()
                    self._changed.wait(None if left == math.inf else max(0.0, left))
                if self._stopped:
                    return
                _, number = heapq.heappop(self._deadlines)
            timeout = self._worker.settings.fetch_fail_timeout
            self._fail(number, TimeoutError(f"the transfer did not end within {timeout:g} s"))

    def _forget_the_ended(self) -> None:
        while self._deadlines and self._deadlines[0][1] not in self._watched:
            heapq.heappop(self._deadlines)

    def _due(self) -> bool:
        self._forget_the_ended()
        return bool(self._deadlines) and self._deadlines[0][0] <= time.monotonic()

    def _fail(self, number: int, error: BaseException) -> None:
        """End a transfer, once, whichever half or clock complains first."""
        with self._changed:
            transfer = self._watched.pop(number, None)
        if transfer is None:
            return
        worker, sides = self._worker, self._sides(transfer)
        logger.info("transfer of %s to %s failed: %s", transfer.obj_id, transfer.destination, error)
        if worker.registry.instance(transfer.transport).can_abort_transport():
            for side in sides:
                worker.host.submit(
                    side, Lane.ERROR, work.abort, transfer.obj_id, transfer.communicator, transfer.transport
                )
        else:
            for side in (transfer.source, transfer.destination):
                if side != DRIVER:
                    worker.host.kill(side)
        self._destroy_group(transfer)

    def _sides(self, transfer: Transfer) -> list[str]:
        """Who is told to abort: the destination, and for two-sided transports the source as well."""
        one_sided = self._worker.registry.find(transfer.transport).transport_class.is_one_sided()
        return [transfer.destination] if one_sided else [transfer.source, transfer.destination]

    def _destroy_group(self, transfer: Transfer) -> None:
        name = getattr(pickling.loads(transfer.communicator), "communicator_name", None)
        if name is None:
            return
        try:
            self._worker.groups.destroy(name)
        except ValueError:
            return  # an earlier failure has destroyed it
        logger.error("destroyed collective group %s after a failed transfer", name)
