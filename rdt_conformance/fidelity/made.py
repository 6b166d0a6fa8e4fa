"""What there is when the steps of a program so far have been played."""

from __future__ import annotations

from dataclasses import dataclass, field

from rdt_conformance.fidelity.steps import Shape


@dataclass
class Object:
    """An object that the driver refers to."""

    name: str
    source: str
    owner: str
    value: str
    """What the source keeps of it; empty for none."""
    shape: Shape | None
    fails: bool = False
    """There is an error in its place."""
    empty: bool = False
    """It has no tensors: it is only passed on, and without trouble, because of a limit of Ray's."""


@dataclass
class Value:
    """A value that a process keeps."""

    name: str
    process: str
    shape: Shape | None
    """None for a list of objects that were received."""
    of_own_object: bool = False
    """The very tensors of an object that its own source has received."""
    parts: set[str] = field(default_factory=set)
    """The values of the same process whose tensors are in it."""
    empty: bool = False
    """There is no tensor in it."""
    spoilt: bool = False
    """The transport has refused to describe it, and Ray 2.60 keeps it for that."""
