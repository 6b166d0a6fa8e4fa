"""Where actors can be placed: the nodes of a Ray, and on each node the GPUs that are kept for them.

A GPU is pinned by a placement group whose bundles are whole GPUs. Every actor then takes a small part of one bundle, so
that any number of actors can share a GPU, and which actors do is ours to say. Ray tells each of its GPU as usual:
`ray.get_gpu_ids()` and CUDA_VISIBLE_DEVICES name that one alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rdt_conformance.engines.base import Spread
from rdt_conformance.engines.untyped import the_ray

MOST_GPUS = 4
"""Of one node: checks have no more actors than that in processes of their own."""
_PART = 0.01
"""Of a GPU, for each actor: Ray schedules by it, and nothing else does."""
_NODE_LABEL = "ray.io/node-id"


@dataclass(frozen=True, eq=False)
class Place:
    """Where an actor can be: a node, or a GPU of it."""

    node_id: str
    group: Any = None
    """Ray's placement group of the GPUs that are kept; None if the actor gets no GPU."""
    bundle: int = 0
    """Which of them."""

    def options(self) -> dict[str, Any]:
        """What Ray has to be told about an actor to place it there."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

        if self.group is None:
            return {"scheduling_strategy": NodeAffinitySchedulingStrategy(self.node_id, soft=False)}
        strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=self.bundle)
        return {"scheduling_strategy": strategy, "num_gpus": _PART}


class Places:
    """All places of a run.

    Args:
        rows: for each node, the driver's first, its places: one for each GPU, or one if there are no GPUs.
    """

    def __init__(self, rows: Sequence[Sequence[Place]]) -> None:
        self._rows = rows

    @classmethod
    def on_nodes(cls, node_ids: Sequence[str]) -> Places:
        """Nodes whose actors get no GPU."""
        return cls([[Place(node_id)] for node_id in node_ids])

    @property
    def gpus(self) -> int:
        """The GPUs of a node that has the fewest; 0 if actors get none."""
        return 0 if self._rows[0][0].group is None else min(map(len, self._rows))

    def of(self, number: int, spread: Spread) -> Place:
        """The place of an actor.

        Args:
            number: counts the actors of a world from 1.
            spread: how far apart they are. Neighbours in number are on different nodes. The first actor of a world has
                a GPU to itself if there are several, and the others have the rest of them in turn.
        """
        row = self._rows[number % len(self._rows) if spread is Spread.NODES else 0]
        apart = len(row) > 1 and number > 1 and spread is not Spread.NOTHING
        return row[1 + (number - 2) % (len(row) - 1) if apart else 0]


class NoGpus(Exception):
    """A node has no GPU left for actors. The message says which."""


def keep_gpus(node_ids: Sequence[str], seconds: float) -> tuple[Places, list[Any]]:
    """Keep the free GPUs of nodes for our actors; the places, and the placement groups to remove in the end.

    Raises:
        NoGpus: a node has none, or does not give them within `seconds`. Nothing is kept then.
    """
    from ray._private import state
    from ray.util.placement_group import placement_group

    free: Mapping[str, Mapping[str, float]] = state.available_resources_per_node()
    rows, groups = [], []
    try:
        for node_id in node_ids:
            count = min(MOST_GPUS, int(free.get(node_id, {}).get("GPU", 0)))
            if not count:
                raise NoGpus(f"node {node_id[:8]} of this Ray has no free GPU")
            selectors = [{_NODE_LABEL: node_id}] * count
            groups.append(placement_group([{"GPU": 1}] * count, "STRICT_PACK", bundle_label_selector=selectors))
            if not groups[-1].wait(seconds):
                raise NoGpus(f"node {node_id[:8]} of this Ray did not give its {count} free GPUs within {seconds:g} s")
            rows.append([Place(node_id, groups[-1], bundle) for bundle in range(count)])
    except NoGpus:
        let_go(groups)
        raise
    return Places(rows), groups


def let_go(groups: Sequence[Any]) -> None:
    """Give kept GPUs back; what still runs on them ends."""
    from ray.util.placement_group import remove_placement_group

    if the_ray().is_initialized():
        for group in groups:
            remove_placement_group(group)
