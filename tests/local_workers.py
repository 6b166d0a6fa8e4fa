"""A look behind the scenes of the local engine."""

from __future__ import annotations

from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import Worker
from rdt_conformance.engines.world import World


def workers(world: World) -> dict[str, Worker]:
    """The workers that are alive, by name."""
    assert isinstance(world.host, ThreadHost)
    return world.host.workers
