"""What a transport claims, as far as it decides which clauses speak of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rdt_conformance.contract_types import Applies, Clause


@dataclass(frozen=True)
class Capabilities:
    """Everything that `applies` needs to know, in a form that lies in a report too."""

    one_sided: bool
    can_abort: bool
    own_fetch: bool
    takes_buffers: bool
    """Whether Ray lets target buffers of its data type come to it."""
    devices: tuple[str, ...]
    nodes: int
    """Over how many nodes the run spread its actors."""
    ray: str = ""
    """The minor version of Ray that the run was on, ``2.60``: clauses that came with a later one do not bind. Empty in
    reports from before that was told: all do."""
    # Earlier reports do not say, as they are of torch tensors and numpy arrays.
    writable: bool = True
    """Whether the suite can write into data of its type."""
    has_parts: bool = True
    """Whether they can be part of larger data."""
    in_chosen_memory: bool = True
    """Whether the suite can lay them into memory of its choice."""

    def to_json(self) -> dict[str, Any]:
        """The capabilities as JSON-ready data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Capabilities:
        """Read what `to_json` wrote."""
        return cls(**{**data, "devices": tuple(data["devices"])})

    def applies(self, clause: Clause, /) -> bool:
        """Whether the clause speaks of this transport at all, on this version of Ray."""
        if self.ray and _numbers(self.ray) < _numbers(clause.since):
            return False
        match clause.applies:
            case Applies.ALWAYS:
                return True
            case Applies.ONE_SIDED:
                return self.one_sided
            case Applies.TWO_SIDED:
                return not self.one_sided
            case Applies.ABORTABLE:
                return self.can_abort
            case Applies.NOT_ABORTABLE:
                return not self.can_abort
            case Applies.ABORTABLE_TWO_SIDED:
                return self.can_abort and not self.one_sided
            case Applies.ONE_SIDED_OR_ABORTABLE:
                return self.one_sided or self.can_abort
            case Applies.OWN_FETCH:
                # Ray fetches over one-sided transports only.
                return self.own_fetch and self.one_sided
            case Applies.TARGET_BUFFERS:
                return self.one_sided and self.takes_buffers
            case Applies.WRITABLE:
                return self.writable
            case Applies.PARTS:
                return self.has_parts
            case Applies.CHOSEN_MEMORY:
                return self.in_chosen_memory
            case Applies.CUDA:
                return "cuda" in self.devices
            case Applies.CUDA_TARGET_BUFFERS:
                return "cuda" in self.devices and self.one_sided and self.takes_buffers
            case Applies.SEVERAL_NODES:
                return self.nodes > 1


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
