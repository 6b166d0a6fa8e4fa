"""Which worker and lane the current thread belongs to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rdt_conformance.engines.base import Lane

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker

_current = threading.local()


@contextmanager
def inside(worker: Worker, lane: Lane) -> Iterator[None]:
    """Run the body as `worker` on `lane`."""
    before = getattr(_current, "place", None)
    _current.place = (worker, lane)
    try:
        yield
    finally:
        _current.place = before


def current_worker() -> Worker:
    """The worker whose lane this thread is.

    Raises:
        RuntimeError: the thread belongs to no worker.
    """
    place = getattr(_current, "place", None)
    if place is None:
        raise RuntimeError("not inside an RDT worker")
    return place[0]


def lane_or_none() -> Lane | None:
    """The lane that this thread is; None outside of any worker."""
    place = getattr(_current, "place", None)
    return None if place is None else place[1]


def current_lane() -> Lane:
    """The lane that this thread is; `Lane.MAIN` outside of any worker."""
    place = getattr(_current, "place", None)
    return Lane.MAIN if place is None else place[1]
