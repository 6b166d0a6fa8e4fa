"""What a program is, and what it has to know of a transport."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rdt_conformance.fidelity.steps import Area, Consume, Simple, Step, Together
from rdt_conformance.ray_interface import INTERFACES, Interface


@dataclass(frozen=True)
class Traits:
    """What programs have to know of a transport."""

    one_sided: bool
    can_abort: bool
    fits_buffers: bool
    """Whether Ray can check and make target buffers of its data type."""
    survives: bool = True
    """Whether the others can go on when an actor has died; not so in a collective group."""
    driver_puts: bool = True
    """Whether the driver can put an object; Ray may not survive it if the transport refuses that."""
    ray: Interface = INTERFACES[-1]
    """What Ray can do, where versions differ."""


@dataclass(frozen=True)
class Program:
    """Steps, played one after the other. In the end every reference is dropped."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def areas(self, traits: Traits) -> set[Area]:
        """The rows of the table of what RDT does that it has to do with."""
        areas = {area for step in self.steps for area in step.areas}
        if not traits.one_sided and Area.PASSING in areas:
            areas.add(Area.TWO_SIDED)
        return areas

    @property
    def is_ordered(self) -> bool:
        """Whether the order in which objects are sent and received is fixed: Ray takes those of one task in any."""
        return all(len({*step.objs, *step.named}) == 1 for step in self.simple_steps() if isinstance(step, Consume))

    def simple_steps(self) -> Iterator[Simple]:
        """Every step, also those within others."""
        for step in self.steps:
            yield from step.steps if isinstance(step, Together) else (step,)
