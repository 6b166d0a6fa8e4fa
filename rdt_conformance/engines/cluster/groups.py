"""Ray's collective groups, without which a transport that is built on them does not carry anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.untyped import the_ray

FEWEST = 4
"""Actors to begin with: a group cannot grow, and making a new one takes a second."""
_LEAVE_SECONDS = 30.0


class RayGroups:
    """One group of all actors of a world.

    Args:
        backend: Ray's name for it, which is also the transport's.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._group: Any = None

    def cover(self, handles: Sequence[Any]) -> None:
        """Let these actors, and no others, talk to each other."""
        from ray.experimental.collective import create_collective_group

        members = list(self._group.actors) if self._group is not None else []
        self.end()
        # Ray 2.60 leaves a process in the torch.distributed world of its first group, which has another size.
        the_ray().get([member.__ray_call__.remote(_leave_torch_world) for member in members], timeout=_LEAVE_SECONDS)
        self._group = create_collective_group(list(handles), backend=self._backend)

    def destroy(self, name: str) -> None:
        """Destroy a group by its name, as Ray does after a failed transfer.

        Raises:
            ValueError: no such group.
        """
        from ray.experimental.collective import destroy_collective_group

        destroy_collective_group(name)
        self._group = None

    def end(self) -> None:
        """Destroy the group, if there still is one."""
        group, self._group = self._group, None
        if group is None:
            return
        try:
            self.destroy(group.name)
        except Exception:
            return  # it went down with an actor


def groups_for(registration: Registration) -> RayGroups | None:
    """What the transport needs of groups; None if nothing."""
    from ray.experimental.rdt.collective_tensor_transport import CollectiveTensorTransport

    if issubclass(registration.transport_class, CollectiveTensorTransport):
        return RayGroups(registration.name)
    return None


def _leave_torch_world(actor: Any) -> None:
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
