"""Stand-ins for Ray's actor handles where there is no Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from rdt_conformance.engines.base import DRIVER
from rdt_conformance.engines.reference.errors import NeedsRayError


@dataclass(frozen=True)
class ActorId:
    """Stands in for Ray's ActorID."""

    name: str

    def hex(self) -> str:
        """The id as hexadecimal digits."""
        return self.name.encode().hex()


@dataclass(frozen=True)
class ActorHandle:
    """What a transport gets as `src_actor` and `dst_actor`: an identity, and nothing that needs a running Ray."""

    _actor_id: ActorId

    @property
    def _ray_actor_id(self) -> ActorId:
        return self._actor_id

    @property
    def __ray_call__(self) -> NoReturn:
        raise NeedsRayError("the transport calls into an actor through Ray: it needs the cluster or ray engine")

    def __repr__(self) -> str:
        return f"Actor({self._actor_id.name})"


def stand_in(name: str) -> ActorHandle | None:
    """The handle of a worker, or None for the driver, which Ray does not give a handle either."""
    return None if name == DRIVER else ActorHandle(ActorId(name))
