"""The engines of one run, by name. Those that need Ray share one, which starts when the first of them is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdt_conformance.engines.local import LocalEngine
from rdt_conformance.engines.ray_session import RayProblem, RaySession
from rdt_conformance.options import SOAK
from rdt_conformance.target import Target, TargetProblem

if TYPE_CHECKING:
    from rdt_conformance.engines.engine import Engine
    from rdt_conformance.engines.reference.registry import Registration
    from rdt_conformance.options import Settings


class Engines:
    """Starts engines and, in the end, Ray's processes.

    Args:
        address: of an existing Ray, see `RaySession`.
        nodes: how many nodes to spread actors over.
    """

    def __init__(self, address: str | None = None, nodes: int = 1) -> None:
        self._session = RaySession(address, nodes)
        self._started = False
        self._problem: RayProblem | None = None

    def start(self, name: str, registration: Registration) -> Engine:
        """The engine `name` for one transport.

        Raises:
            RayProblem: it needs Ray, which cannot be started.
        """
        if name == "local":
            return LocalEngine(registration)
        self.start_ray()
        from rdt_conformance.engines.cluster.engine import ClusterEngine
        from rdt_conformance.engines.ray.engine import RayEngine

        return (ClusterEngine if name == "cluster" else RayEngine)(self._session, registration)

    def start_ray(self) -> None:
        """Start or join Ray, if that has not been done. It is tried only once.

        Raises:
            RayProblem: that did not succeed, now or before.
        """
        if self._problem is not None:
            raise self._problem
        if not self._started:
            try:
                self._session.start()
            except RayProblem as problem:
                self._problem = problem
                raise
            self._started = True

    def stop(self) -> None:
        """Stop Ray if it was started."""
        if self._started:
            self._started = False
            self._session.stop()


def engines_of(settings: Settings, target: Target) -> tuple[str, ...]:
    """On which engines to run.

    Raises:
        TargetProblem: the user asked for one that the transport cannot live on.
    """
    if settings.profile == SOAK:
        if settings.engines not in ((), ("ray",)):
            raise TargetProblem("a soak works on the ray engine alone: leave out --rdt-engine")
        return ("ray",)
    needs_process = target.needs_process.value
    if needs_process and "local" in settings.engines:
        raise TargetProblem(
            f"{target.spec} needs a process of its own [{target.needs_process.learnt}]: "
            "leave out --rdt-engine, or choose cluster or ray"
        )
    base = "cluster" if needs_process else "local"
    asks_for_ray = settings.profile != "quick" or settings.nodes > 1 or settings.address is not None
    return settings.engines or ((base, "ray") if asks_for_ray else (base,))
