"""Starts the processes of actors, some of them ahead of time, and ends them."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any

import psutil

from rdt_conformance import pickling
from rdt_conformance.engines.base import NoProcess
from rdt_conformance.engines.cluster.actor import WATCH, ActorProcess, Orders
from rdt_conformance.engines.cluster.channel import Channel, Hello, this_machine
from rdt_conformance.engines.places import Place, Places
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.untyped import the_ray
from rdt_conformance.observe.devices import remove_drivers_files

START_SECONDS = 180.0
"""For a process to be there. On a loaded machine Ray, which runs workers at low priority, takes a minute."""
END_SECONDS = 10.0


@dataclass(eq=False)
class Remote:
    """A process of an actor, as the driver sees it."""

    handle: Any
    """Ray's."""
    channel: Channel
    process: psutil.Process | None
    """None if it is on another machine."""
    behind: float
    """Seconds to add to its clock to have this process's; 0 on the same machine."""
    receive: Callable[[Any], None] | None = None
    """Gets what comes through the channel."""
    gone: Callable[[], None] | None = None
    """Told when the channel is closed."""

    def has_ended(self) -> bool:
        """Whether it is known to have ended; of one on another machine only its channel tells."""
        try:
            return self.process is not None and self.process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def kill(self) -> None:
        """End it at once, whatever it does, stopped or not."""
        import ray

        if self.process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.process.kill()
        with contextlib.suppress(Exception):  # Ray may have noticed already
            ray.kill(self.handle)
        if self.process is not None:
            with contextlib.suppress(psutil.Error):
                self.process.wait(END_SECONDS)
            remove_drivers_files(self.process.pid)
        self.channel.close()


class Fleet:
    """The actor processes of one run.

    Args:
        registration: the transport under test; every process loads its class before it is handed out.
        places: where actors can be placed.
        host: the address of this machine that actors can reach.
        actor_class: what to run in them, for an engine that needs more than `ActorProcess`.
    """

    def __init__(
        self,
        registration: Registration,
        places: Places,
        host: str,
        actor_class: type[ActorProcess] = ActorProcess,
    ) -> None:
        self.places = places
        self._actor_class = actor_class
        # Kept ready in each place that has been used. All but one actor of a world may share a GPU, whose setting up
        # takes seconds.
        self._spares_wanted = 2 if places.gpus else 1
        self._secret = secrets.token_bytes(32)
        self._listener = Listener((host, 0), backlog=64, authkey=self._secret)
        self._registration, self._by_value = _pickled(registration)
        self._numbers = itertools.count(1)
        self._starting: defaultdict[Place, deque[str]] = defaultdict(deque)
        self._handles: dict[str, Any] = {}
        self._arrived: dict[str, tuple[Hello, Remote]] = {}
        self._changed = threading.Condition()
        self._all: list[Remote] = []
        self._stopped = False
        threading.Thread(target=self._accept, name="rdt-fleet", daemon=True).start()

    def prepare(self, count: int, place: Place) -> None:
        """Have `count` processes started ahead of time in a place, at least."""
        while len(self._starting[place]) < count:
            self._starting[place].append(self._start(place))

    def take(self, place: Place) -> Remote:
        """A process in a place that has never built the transport, or anything else.

        Raises:
            NoProcess: none could be started.
        """
        self.prepare(1, place)
        name = self._starting[place].popleft()
        deadline = time.monotonic() + START_SECONDS
        with self._changed:
            while name not in self._arrived:
                problem = self._problem(name)
                if problem or time.monotonic() > deadline:
                    reason = problem or f"it was not there within {START_SECONDS:g} s"
                    raise NoProcess(f"Ray could not start the process of an actor: {reason}", of_the_transport=False)
                self._changed.wait(1.0)
            hello, remote = self._arrived.pop(name)
        if hello.problem:
            raise NoProcess(f"an actor's process could not load the class: {hello.problem}", of_the_transport=True)
        self.prepare(self._spares_wanted, place)
        return remote

    def stop(self) -> None:
        """End every process."""
        self._stopped = True
        with contextlib.suppress(OSError):
            self._listener.close()
        for name in itertools.chain(*self._starting.values()):
            with contextlib.suppress(Exception):
                the_ray().kill(self._handles[name])
        for remote in self._all:
            remote.kill()

    def _start(self, place: Place) -> str:
        name = f"process{next(self._numbers)}"
        address: Any = self._listener.address
        path = [os.path.abspath(entry) for entry in sys.path]
        orders = Orders(name, address, self._secret, path, self._registration, self._by_value)
        actor = the_ray().remote(
            num_cpus=0,
            max_restarts=0,
            enable_tensor_transport=True,
            concurrency_groups={"rdt_io": 1, WATCH: 4},
            **place.options(),
        )(self._actor_class)
        self._handles[name] = actor.remote(orders)
        return name

    def _problem(self, name: str) -> str:
        """Why a process will never arrive; empty if it still may."""
        ray = the_ray()
        ready = self._handles[name].__ray_ready__.remote()
        try:
            ray.get(ready, timeout=0)
        except ray.exceptions.GetTimeoutError:
            return ""
        except Exception as error:
            return str(error).strip().splitlines()[-1]
        return ""

    def _accept(self) -> None:
        while not self._stopped:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError):
                continue  # not one of ours
            except OSError:
                if self._stopped:
                    return
                continue
            self._welcome(connection)

    def _welcome(self, connection: Connection) -> None:
        """Let a process introduce itself; from then on its messages go to whoever has it."""
        known: list[Remote] = []

        def received(message: Any) -> None:
            if isinstance(message, Hello):
                known.append(self._introduce(message, ready))
            elif known[0].receive is not None:
                known[0].receive(message)

        def closed() -> None:
            if known and known[0].gone is not None:
                known[0].gone()

        ready: list[Channel] = []
        with self._changed:  # no message is dealt with before the channel is known
            ready.append(Channel(connection, received, closed))

    def _introduce(self, hello: Hello, channel: list[Channel]) -> Remote:
        with self._changed:
            process = None
            here = hello.machine == this_machine()
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(hello.pid) if here else None
            behind = 0.0 if here else time.perf_counter() - hello.now
            remote = Remote(self._handles[hello.process], channel[0], process, behind)
            self._all.append(remote)
            self._arrived[hello.process] = (hello, remote)
            self._changed.notify_all()
        return remote


def _pickled(registration: Registration) -> tuple[bytes, bytes]:
    """By reference, as far as there are modules, and by value; the latter is empty if that cannot be done."""
    by_reference = pickling.dumps(registration)
    try:
        return by_reference, pickling.dumps_by_value(registration, registration.transport_class.__module__) or b""
    except Exception:
        return by_reference, b""
