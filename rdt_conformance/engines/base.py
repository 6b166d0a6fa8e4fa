"""The vocabulary that suites speak, whatever carries it out.

Everything a suite asks of an actor comes back as a :class:`Pending`, so that nothing can hang unnoticed: waiting on one
is bounded, and a bound that passes is a verdict (:class:`Hung`) with the stacks of the threads that are stuck.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rdt_conformance import author

DRIVER = "driver"
"""The name of the process that has no actor."""

T = TypeVar("T")
U = TypeVar("U")


class Lane(str, enum.Enum):
    """The threads of one Ray worker process that may be inside a transport."""

    MAIN = "main"
    """User code: tasks, put, get. Ray calls extract, fetch and wait here."""
    SYSTEM = "_ray_system"
    """Ray calls recv, send and garbage_collect here, one at a time, in the order the owner submitted them."""
    ERROR = "_ray_system_error"
    """Ray calls abort_transport here, while the other two may be blocked."""
    IO = "io"
    """The owner's callback thread: metadata arrives, reference counts drop, driver-owned objects are freed."""


class Spread(enum.Enum):
    """How far apart the actors of a world are placed, as far as the machine has room for that."""

    NODES = "over nodes and their GPUs"
    """One actor after the other on the next node, and on the next GPU if actors have GPUs."""
    GPUS = "on one node, over its GPUs if they have any"
    NOTHING = "on one GPU of one node"


@dataclass(frozen=True)
class Patience:
    """How long the harness waits before it calls something hung, in seconds.

    These are bounds on *no progress at all*, not on speed: a loaded CI machine may take a thousand times longer than an
    idle one and still pass.
    """

    call: float = 10.0
    """One call, or one complete transfer, of a small object."""
    own: float = 30.0
    """What the harness does in a process: it builds and compares, and imports what that takes. Longer than a call of
    the transport may take, which would otherwise be blamed for it."""
    abort: float = 5.0
    """From an abort to the end of the call it interrupts (A1, A2)."""
    per_gib: float = 20.0
    """Added for every GiB that has to move."""

    @classmethod
    def at_first(cls, engine: str, longer: float = 0.0) -> Patience:
        """That of a run in which nothing has hung yet; for a transport that itself gives up so much later.

        Among processes it is longer: what is done once, such as to connect two GPUs by NCCL, can take more than ten
        seconds on a machine that has too much to do. Ray itself waits for a minute.
        """
        return cls(call=(cls.call if engine == "local" else 30.0) + longer)

    def for_bytes(self, nbytes: int) -> float:
        """The bound for moving `nbytes`."""
        return self.call + self.per_gib * nbytes / 2**30

    def for_own(self, nbytes: float) -> float:
        """The bound for building or looking at `nbytes`."""
        return self.own + self.per_gib * nbytes / 2**30


class Hung(BaseException):
    """Something did not come back in time.

    Not an Exception: Hypothesis would otherwise run the same hang again and again to shrink it.
    """

    def __init__(self, what: str, seconds: float, stacks: str) -> None:
        super().__init__(f"{what} did not come back within {seconds:.3g} s")
        self.what = what
        self.seconds = seconds
        self.stacks = stacks


class NoProcess(Exception):
    """A process could not be started for an actor, or could not load the transport; one line says why."""

    def __init__(self, reason: str, *, of_the_transport: bool) -> None:
        super().__init__(reason)
        self.of_the_transport = of_the_transport
        """Whether it is the transport's class that could not get there."""


@dataclass(frozen=True)
class Origin:
    """Which transport call raised an exception. Attached to the exception itself, so it also crosses processes."""

    method: str
    process: str
    lane: str

    def __str__(self) -> str:
        return f"{self.method} on {self.process} ({self.lane})"


def mark_origin(error: BaseException, origin: Origin) -> None:
    """Remember where in the transport `error` came from; the innermost call wins."""
    if origin_of(error) is None:
        error.__dict__["__rdt_origin__"] = origin  # past any __setattr__ that the class may have
        author.note_traceback(error)


def origin_of(error: BaseException | None) -> Origin | None:
    """The transport call that raised `error`, or None if it did not come out of a transport."""
    return getattr(error, "__rdt_origin__", None)


def converted(
    future: Future[Any], convert: Callable[[Any], U], translate: Callable[[BaseException], BaseException] | None = None
) -> Future[U]:
    """A future with what another brings, converted, or with its error, translated if it has to be."""
    following: Future[U] = Future()

    # `done`, not `future`: that would be a cycle, which keeps what was brought alive until the next garbage collection.
    def finish(done: Future[Any]) -> None:
        try:
            following.set_result(convert(done.result()))
        except BaseException as error:
            following.set_exception(translate(error) if translate is not None else error)

    future.add_done_callback(finish)
    return following


def wait_for(future: Future[Any], seconds: float) -> bool:
    """Wait up to `seconds` for a future to be done; whether it is."""
    return bool(wait((future,), seconds).done)


class Pending(Generic[T]):
    """A call under way in some actor.

    Args:
        future: what will come back.
        what: the call in words, for the message if it hangs.
        stacks: gives the stacks of the threads that may be stuck.
        come_back: waits up to so many seconds for a future to be done, and tells whether it is.
    """

    def __init__(
        self,
        future: Future[Any],
        what: str,
        stacks: Callable[[], str],
        come_back: Callable[[Future[Any], float], bool] = wait_for,
    ) -> None:
        self._future = future
        self.what = what
        self._stacks = stacks
        self._come_back = come_back

    def done(self) -> bool:
        """Whether it has come back, without waiting."""
        return self._future.done()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for it to come back; whether it did. Never raises what it raised."""
        return self._come_back(self._future, seconds)

    def wait_with(self, other: Pending[Any], seconds: float) -> None:
        """Wait up to `seconds` for both to come back, or for one of them to fail.

        Raises:
            Hung: neither has failed, and one is still not back.
        """
        done, missing = wait((self._future, other._future), seconds, FIRST_EXCEPTION)
        if missing and not any(each.exception() for each in done):
            late = self if self._future in missing else other
            raise Hung(late.what, seconds, late._stacks())

    def result(self, seconds: float = Patience.call) -> T:
        """What came back.

        Raises:
            Hung: nothing came back within `seconds`.
            BaseException: what the call itself raised.
        """
        self._bounded(seconds)
        return self._future.result()

    def error(self, seconds: float = Patience.call) -> BaseException | None:
        """What the call raised, or None if it returned.

        Raises:
            Hung: nothing came back within `seconds`.
        """
        self._bounded(seconds)
        return self._future.exception()

    def _bounded(self, seconds: float) -> None:
        if not self._come_back(self._future, seconds):
            raise Hung(self.what, seconds, self._stacks())

    def then(self, convert: Callable[[T], U]) -> Pending[U]:
        """The same call with its result converted, e.g. a key into a handle."""
        return Pending(converted(self._future, convert), self.what, self._stacks, self._come_back)
