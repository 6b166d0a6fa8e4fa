"""One object, as a worker that owns or borrows it knows it."""

from __future__ import annotations

import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rdt_conformance.engines.reference.work import Created


@dataclass
class Entry:
    """What one worker knows about an object that it owns or borrows."""

    obj_id: str
    owner: str
    source: str
    transport: str
    created: Future[Created] = field(default_factory=Future)
    """Resolves when the source has made the object, to an error if it could not."""
    handles: int = 0
    """References alive in this worker, and its tasks that have the object as an argument."""
    loans: int = 0
    """References on their way to other workers (owner only)."""
    borrowers: int = 0
    """Workers that hold references (owner only)."""
    waiting: list[str] = field(default_factory=list)
    """Destinations that were promised the object before it existed."""
    sent_to: set[str] = field(default_factory=set)
    warned: bool = False
    target_buffers: list[weakref.ref[Any]] | None = None
    target_device: str | None = None

    @property
    def travels(self) -> bool:
        """Whether it exists and is for a transport to carry. What was put without tensors is an ordinary value."""
        return self.created.done() and self.created.exception() is None and bool(self.created.result().metadata)

    @property
    def in_use(self) -> bool:
        """Whether anybody anywhere still refers to the object."""
        return bool(self.handles or self.loans or self.borrowers)
