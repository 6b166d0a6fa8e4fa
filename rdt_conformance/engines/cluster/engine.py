"""The cluster engine: the reference RDT with each actor in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdt_conformance.engines.base import DRIVER, Spread
from rdt_conformance.engines.cluster.fleet import Fleet
from rdt_conformance.engines.cluster.groups import groups_for
from rdt_conformance.engines.cluster.processes import ProcessHost
from rdt_conformance.engines.ray_session import RaySession
from rdt_conformance.engines.reference.rdt import ReferenceRdt
from rdt_conformance.engines.reference.registry import Registration, Registry
from rdt_conformance.engines.reference.worker import AS_IN_RAY, Settings, Worker
from rdt_conformance.engines.world import World
from rdt_conformance.history import History

if TYPE_CHECKING:
    from rdt_conformance.payloads.base import Recipe


class ClusterEngine:
    """Makes worlds of processes.

    Args:
        session: a Ray that runs already.
        registration: the transport under test.
    """

    keeps_worlds = True

    def __init__(self, session: RaySession, registration: Registration) -> None:
        self._registration = registration
        self._fleet = Fleet(registration, session.places(registration.devices), session.host)
        # As in Ray, a process has one instance of a transport, for as long as it lives; this one is no exception. But
        # what Ray itself finds in this process is the ray engine's.
        self._registry = Registry((registration,), lasting=True)

    def new_world(
        self, settings: Settings = AS_IN_RAY, first_use: Recipe | None = None, *, spread: Spread = Spread.NODES
    ) -> World:
        """A driver, and actors whose processes have never built the transport; see `Engine.new_world`."""
        groups = groups_for(self._registration)
        host = ProcessHost(self._fleet, settings, History(), groups, spread=spread)
        host.add_driver(Worker(DRIVER, host, self._registry, host.history, settings))
        return World(
            host,
            ReferenceRdt(host, self._registration.name),
            self._registration.name,
            first_use,
            device=self._registration.devices[0],
        )

    @property
    def gpus(self) -> int:
        """See `Engine.gpus`."""
        return self._fleet.places.gpus

    def close(self) -> None:
        """End all processes, and let go of what this one has of the transport."""
        self._fleet.stop()
        self._registry.clear(for_good=True)
