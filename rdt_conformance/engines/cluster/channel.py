"""A connection from an actor's process to the driver's, for what an actor has to say unasked.

Ray carries calls to actors and their answers. A driver cannot be called, so an actor's own calls, and word of every
call of its transport, come this way.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from rdt_conformance import pickling

HANDSHAKE_SECONDS = 30


@dataclass(frozen=True)
class Hello:
    """The first message: who is at the other end, or why nobody will be."""

    process: str
    """The name under which the fleet started it."""
    pid: int
    machine: str
    """See `this_machine`."""
    now: float
    """On its clock of ``time.perf_counter``."""
    problem: str = ""


@dataclass(frozen=True)
class Began:
    """A transport call has begun."""

    number: int
    at: float
    """On the sender's clock of ``time.perf_counter``, which all processes of one machine share."""
    lane: str
    what: str
    obj_id: str


@dataclass(frozen=True)
class Ended:
    """A transport call has ended."""

    number: int
    at: float
    outcome: str
    failed: bool


@dataclass(frozen=True)
class ThreadEnded:
    """A thread of the process has ended by an error."""

    told: str
    """Its name, and the traceback."""


@dataclass(frozen=True)
class Request:
    """Run a message on a lane of another worker and send an `Answer`."""

    number: int
    to: str
    lane: str
    message: bytes


@dataclass(frozen=True)
class Kill:
    """End a worker."""

    name: str


@dataclass(frozen=True)
class Answer:
    """What a `Request` came to, as `dump_outcome` made it."""

    number: int
    outcome: bytes


def this_machine() -> str:
    """Tells where a process id of this process means the same process: within one kernel and one container."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    numbers = Path("/proc/self/ns/pid")
    return f"{boot.read_text().strip()} {numbers.readlink()}" if boot.exists() else socket.gethostname()


class Channel:
    """One end. Any thread may send; one thread of its own receives.

    Args:
        connection: authenticated.
        received: called for every message, in order.
        closed: called once the other end has gone.
    """

    def __init__(self, connection: Connection, received: Callable[[Any], None], closed: Callable[[], None]) -> None:
        self._connection = connection
        self._received = received
        self._closed = closed
        self._sending = threading.Lock()
        self._progress = threading.Condition()
        self.sent = 0
        self._processed: float = 0
        _send_at_once(connection)
        self._thread = threading.Thread(target=self._receive, name="rdt-channel", daemon=True)
        self._thread.start()

    def send(self, message: Any) -> None:
        """Send a message; one that cannot arrive any more is dropped."""
        packed = pickling.dumps(message)
        with self._sending, contextlib.suppress(OSError):
            self._connection.send_bytes(packed)
            self.sent += 1

    def wait_processed(self, count: int, seconds: float) -> bool:
        """Wait until `count` messages have been received and dealt with, or no more can come."""
        with self._progress:
            return self._progress.wait_for(lambda: self._processed >= count, seconds)

    def close(self) -> None:
        """End it; the other end sees that."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def _receive(self) -> None:
        while (packed := self._next()) is not None:
            message = pickling.loads(packed)
            self._received(message)
            del message, packed
            self._advance(self._processed + 1)
        self._advance(float("inf"))
        self._closed()

    def _next(self) -> bytes | None:
        """The next message; None if no more can come."""
        try:
            return self._connection.recv_bytes()
        except (OSError, EOFError, TypeError):  # the last if this end is closed meanwhile
            return None

    def _advance(self, processed: float) -> None:
        with self._progress:
            self._processed = processed
            self._progress.notify_all()


def connect(address: tuple[str, int], secret: bytes) -> Connection:
    """The actor's end of a new connection.

    Raises:
        OSError: nobody listens there.
        multiprocessing.AuthenticationError: the secret is wrong.
    """
    return Client(address, authkey=secret)


def dump_outcome(result: Any = None, error: BaseException | None = None) -> bytes:
    """What a message came to, to be carried to who sent it. An error that cannot be pickled is told in its words."""
    try:
        return pickling.dumps((result, error))
    except Exception as obstacle:
        stand_in = Untold(f"{type(error or result).__name__} cannot be pickled ({obstacle}): {error or ''}")
        stand_in.__dict__.update(_marks(error))
        return pickling.dumps((None, stand_in))


def load_outcome(outcome: bytes) -> tuple[Any, BaseException | None]:
    """What `dump_outcome` made. An error of which that cannot be made again is told in its words."""
    try:
        return pickling.loads(outcome)
    except Exception as obstacle:
        return None, Untold(f"what came back cannot be unpickled ({obstacle})")


def outcome_of(done: Future[Any]) -> bytes:
    """What a future that is done came to."""
    error = done.exception()
    return dump_outcome(error=error) if error is not None else dump_outcome(done.result())


class Untold(RuntimeError):
    """Stands for a result or an error that could not be pickled."""


def _marks(error: BaseException | None) -> dict[str, Any]:
    """What the harness has noted on an error."""
    return {name: value for name, value in getattr(error, "__dict__", {}).items() if name.startswith("__rdt_")}


def _send_at_once(connection: Connection) -> None:
    """Small messages must not wait for others to share a packet with."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as same:
        if same.family in (socket.AF_INET, socket.AF_INET6):
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
