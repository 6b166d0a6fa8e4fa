"""How workers reach each other, and who starts and ends them.

Threads carry the local engine (`threads`), Ray actors the others (`rdt_conformance.engines.cluster`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from rdt_conformance.engines.base import Lane
from rdt_conformance.observe import Observer

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker
    from rdt_conformance.history import History


class Host(Protocol):
    """What a worker sees: runs functions on the lanes of workers and brings back what they return.

    A message is a module-level function whose first argument is the worker it runs in, with arguments and a result that
    can be pickled. Messages of one sender to one lane arrive in the order of sending.
    """

    def submit(self, to: str, lane: Lane, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run `function(worker, *args)` on a lane of worker `to`. A dead worker gives a future with ActorDiedError."""
        ...

    def kill(self, name: str) -> None:
        """End a worker at once; nothing of it gets to clean up."""
        ...

    def handle(self, name: str) -> Any:
        """What a transport gets as `src_actor` or `dst_actor`; None for the driver, which Ray has no handle of."""
        ...


class Processes(Host, Protocol):
    """What a world sees: also starts workers, and looks at them from the side."""

    @property
    def history(self) -> History:
        """What happened in all workers, in one clock."""
        ...

    @property
    def driver(self) -> Worker:
        """The worker of the process that has no actor; it lives in this very process."""
        ...

    def expect(self, names: Sequence[str]) -> None:
        """These workers are about to be started: what takes time can be begun for all of them at once."""
        ...

    def start(self, name: str) -> None:
        """Start a worker, or start one again under the name of one that died, with everything that is registered."""
        ...

    def pause(self, name: str) -> bool:
        """Stop a process, which notices nothing of it, until `resume`; False if it is dead or out of reach."""
        ...

    def resume(self, name: str) -> None:
        """Let a stopped process go on, unless it was killed meanwhile."""
        ...

    def died(self) -> dict[str, bool]:
        """The workers that have ended although we did not end them; True: nor did Ray, so it was by themselves."""
        ...

    def last_words(self) -> str:
        """What the workers, or threads, that have ended by themselves wrote as they did; empty if nothing is known."""
        ...

    @property
    def at_least(self) -> int:
        """How many actors to start in one go."""
        ...

    def introduce(self) -> None:
        """All actors of this moment may talk to each other from now on."""
        ...

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no lane has anything left to do; whether that came true within `seconds`."""
        ...

    def tidy(self, seconds: float) -> bool:
        """Let every worker forget what it keeps, wait until all is idle, and tell whether no object is left."""
        ...

    def watch(self, *, memory: bool = True) -> Observer:
        """Begin to watch the processes of all workers, with or without their memory."""
        ...

    def stacks(self) -> str:
        """Where each lane that is inside a job stands right now."""
        ...

    def stop(self) -> None:
        """End all workers that can be ended."""
        ...
