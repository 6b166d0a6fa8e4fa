"""The ray engine: Ray's own RDT."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rdt_conformance.engines.base import DRIVER, Spread
from rdt_conformance.engines.cluster.fleet import Fleet
from rdt_conformance.engines.cluster.groups import groups_for
from rdt_conformance.engines.ray.actor import RayActorProcess
from rdt_conformance.engines.ray.early_word import await_owner
from rdt_conformance.engines.ray.host import RayHost
from rdt_conformance.engines.ray.rdt import RayRdt
from rdt_conformance.engines.ray.recording import Place, record_in
from rdt_conformance.engines.ray.registry import RayRegistry
from rdt_conformance.engines.ray.user_code import set_fetch_fail_timeout
from rdt_conformance.engines.ray.worker import RayWorker
from rdt_conformance.engines.ray_session import RaySession
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.worker import AS_IN_RAY, Settings
from rdt_conformance.engines.world import World
from rdt_conformance.history import History
from rdt_conformance.ray_interface import installed_interface

if TYPE_CHECKING:
    from rdt_conformance.payloads.base import Recipe


class RayEngine:
    """Makes worlds of processes that Ray's RDT connects.

    Args:
        session: a Ray that runs already.
        registration: the transport under test.
    """

    keeps_worlds = True

    def __init__(self, session: RaySession, registration: Registration) -> None:
        self._registration = registration
        self._registry = RayRegistry(registration)
        self._registry.register_with_ray()
        self._leaving = contextlib.ExitStack()
        if not installed_interface().keeps_early_word:
            self._leaving.callback(await_owner())
        self._fleet = Fleet(registration, session.places(registration.devices), session.host, RayActorProcess)

    def new_world(
        self, settings: Settings = AS_IN_RAY, first_use: Recipe | None = None, *, spread: Spread = Spread.NODES
    ) -> World:
        """See `Engine.new_world`."""
        history = History()
        record_in(Place(DRIVER, history))
        set_fetch_fail_timeout(None, settings.fetch_fail_timeout)
        host = RayHost(self._fleet, settings, history, groups_for(self._registration), spread=spread)
        host.add_driver(RayWorker(DRIVER, host, self._registry, history, settings))
        return World(
            host,
            RayRdt(host, self._registration.name),
            self._registration.name,
            first_use,
            device=self._registration.devices[0],
        )

    @property
    def gpus(self) -> int:
        """See `Engine.gpus`."""
        return self._fleet.places.gpus

    def close(self) -> None:
        """End all processes, and let Ray forget the transport."""
        self._fleet.stop()
        self._leaving.close()
        self._registry.hide_from_ray()
