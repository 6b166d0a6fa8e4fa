"""The local engine: the reference RDT with all its processes in this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdt_conformance.engines.base import DRIVER, Spread
from rdt_conformance.engines.reference import thread_errors
from rdt_conformance.engines.reference.rdt import ReferenceRdt
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import AS_IN_RAY, Settings
from rdt_conformance.engines.world import World
from rdt_conformance.history import History

if TYPE_CHECKING:
    from rdt_conformance.payloads.base import Recipe


class LocalHost(ThreadHost):
    """A driver as threads of this process, and every actor that is started."""

    def __init__(self, registration: Registration, settings: Settings) -> None:
        self.history = History()
        super().__init__((registration,), self.history, settings)
        thread_errors.listen(self.history.last_words)
        self.start(DRIVER)

    def last_words(self) -> str:
        """See `host.Processes.last_words`; here, of threads of this process."""
        return "\n".join(self.history.last_words)

    def stop(self, seconds: float = 2.0) -> None:
        """See `ThreadHost.stop`."""
        super().stop(seconds)
        thread_errors.stop_listening(self.history.last_words)


def local_world(registration: Registration, settings: Settings = AS_IN_RAY, first_use: Recipe | None = None) -> World:
    """A world of threads; see `World` for `first_use`."""
    host = LocalHost(registration, settings)
    rdt = ReferenceRdt(host, registration.name)
    return World(host, rdt, registration.name, first_use, threads=host, device=registration.devices[0])


class LocalEngine:
    """See `rdt_conformance.engines.engine.Engine`."""

    keeps_worlds = False
    gpus = 0

    def __init__(self, registration: Registration) -> None:
        self._registration = registration

    def new_world(
        self, settings: Settings = AS_IN_RAY, first_use: Recipe | None = None, *, spread: Spread = Spread.NODES
    ) -> World:
        """See `Engine.new_world`. All actors are in one place."""
        return local_world(self._registration, settings, first_use)

    def close(self) -> None:
        """Worlds end by themselves."""
