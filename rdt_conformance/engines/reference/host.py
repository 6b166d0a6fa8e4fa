"""How workers reach each other. Threads carry the local engine; Ray actors will carry the cluster engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from rdt_conformance.engines.base import Lane


class Host(Protocol):
    """Runs functions on the lanes of workers and brings back what they return.

    A message is a module-level function whose first argument is the worker it runs in, with arguments and a result that
    can be pickled. Messages of one sender to one lane arrive in the order of sending.
    """

    def submit(self, to: str, lane: Lane, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run `function(worker, *args)` on a lane of worker `to`. A dead worker gives a future with ActorDiedError."""
        ...

    def kill(self, name: str) -> None:
        """End a worker at once; nothing of it gets to clean up."""
        ...
