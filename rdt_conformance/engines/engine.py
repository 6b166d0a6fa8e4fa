"""What a run needs of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rdt_conformance.engines.base import Spread
from rdt_conformance.engines.reference.worker import AS_IN_RAY, Settings

if TYPE_CHECKING:
    from rdt_conformance.engines.world import World
    from rdt_conformance.payloads.base import Recipe


class Engine(Protocol):
    """Makes the worlds that examples play in, for one transport."""

    keeps_worlds: bool
    """Whether a world is too dear to be given up while it is clean. If not, every check gets new ones."""

    def new_world(
        self, settings: Settings = AS_IN_RAY, first_use: Recipe | None = None, *, spread: Spread = Spread.NODES
    ) -> World:
        """A world in which nothing has happened yet.

        Args:
            settings: what Ray would read from its environment.
            first_use: see `World`.
            spread: how far apart its actors are.
        """
        ...

    @property
    def gpus(self) -> int:
        """Over how many GPUs it spreads the actors of a node; 0 if none of them has one."""
        ...

    def close(self) -> None:
        """End everything that worlds have left running."""
        ...
