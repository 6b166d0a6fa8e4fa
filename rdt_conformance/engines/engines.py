"""The engines of one run, by name. Those that need Ray share one, which starts when the first of them is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdt_conformance.engines.local import LocalEngine
from rdt_conformance.engines.ray_session import RaySession

if TYPE_CHECKING:
    from rdt_conformance.engines.engine import Engine
    from rdt_conformance.engines.reference.registry import Registration


class Engines:
    """Starts engines and, in the end, Ray's processes.

    Args:
        address: of an existing Ray, see `RaySession`.
        nodes: how many nodes to start, or to spread actors over.
    """

    def __init__(self, address: str | None = None, nodes: int = 1) -> None:
        self._session = RaySession(address, nodes)
        self._started = False

    def start(self, name: str, registration: Registration) -> Engine:
        """The engine `name` for one transport.

        Raises:
            RayProblem: it needs Ray, which cannot be started.
        """
        if name == "local":
            return LocalEngine(registration)
        if not self._started:
            self._session.start()
            self._started = True
        from rdt_conformance.engines.cluster.engine import ClusterEngine
        from rdt_conformance.engines.ray.engine import RayEngine

        return (ClusterEngine if name == "cluster" else RayEngine)(self._session, registration)

    def stop(self) -> None:
        """Stop Ray if it was started."""
        if self._started:
            self._started = False
            self._session.stop()
