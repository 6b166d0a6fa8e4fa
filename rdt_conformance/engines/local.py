"""The local engine: the reference RDT with all its processes in this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdt_conformance.engines.reference.rdt import ReferenceRdt
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import AS_IN_RAY, DRIVER, Settings
from rdt_conformance.engines.world import World
from rdt_conformance.history import History

if TYPE_CHECKING:
    from rdt_conformance.payloads.base import Recipe


def local_world(registration: Registration, settings: Settings = AS_IN_RAY, first_use: Recipe | None = None) -> World:
    """A world of threads; see `World` for `first_use`."""
    host = ThreadHost((registration,), History(), settings)
    host.start(DRIVER)
    return World(host, ReferenceRdt(host, registration.name), registration.name, first_use)
