"""What a clause of the contract is. `rdt_conformance.contract` offers these types together with the clauses."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Level(enum.Enum):
    """How binding a clause is."""

    MUST = "MUST"
    """Ray relies on it or documents it. Broken: the run fails."""
    SHOULD = "SHOULD"
    """A user would suffer, though Ray does not rely on it. Broken: the run warns."""
    REPORT = "REPORT"
    """No right or wrong; users want to know."""


class Area(enum.Enum):
    """The chapters of the contract, in the order in which a transport should be made right."""

    STATIC = "static"
    METADATA = "metadata"
    INTEGRITY = "integrity"
    LIFECYCLE = "lifecycle"
    ORDERING = "ordering"
    FETCH = "fetch"
    BUFFERS = "buffers"
    CONCURRENCY = "concurrency"
    GC = "gc"
    ABORT = "abort"
    FAULTS = "faults"


class Applies(enum.Enum):
    """Which transports a clause speaks of; `rdt_conformance.capabilities.Capabilities` knows which these are."""

    ALWAYS = "every transport"
    ONE_SIDED = "one-sided transports"
    TWO_SIDED = "two-sided transports"
    ABORTABLE = "transports that can abort"
    NOT_ABORTABLE = "transports that cannot abort"
    ABORTABLE_TWO_SIDED = "two-sided transports that can abort"
    ONE_SIDED_OR_ABORTABLE = "transports that are one-sided or can abort"
    """All but those with which Ray has to kill the source when a receiver dies."""
    OWN_FETCH = "transports with a fetch of their own"
    TARGET_BUFFERS = "one-sided transports of torch tensors"
    """Before Ray hands a transport target buffers, it asks each whether it is contiguous as only torch tensors know."""
    WRITABLE = "transports of data that can be written to in place"
    PARTS = "transports of data that can be part of larger data"
    """As a view is of a tensor; JAX has no such arrays."""
    CHOSEN_MEMORY = "transports of data that can be laid into memory of the user's choice"
    CUDA = "transports that carry GPU memory"
    CUDA_TARGET_BUFFERS = "one-sided transports that carry GPU memory"
    SEVERAL_NODES = "runs on several nodes (--rdt-nodes)"


EVERYWHERE = frozenset({"local", "cluster", "ray"})
REFERENCE = frozenset({"local", "cluster"})
"""For situations that Ray's own interface has no way to bring about, such as a second free of the same object."""
PROCESSES = frozenset({"cluster", "ray"})
"""For situations that need actors to be processes of their own, which can be killed and paused."""
LOCAL = frozenset({"local"})
"""Where a call of the harness takes less time than a fetch."""


@dataclass(frozen=True)
class Clause:
    """One promise that a transport makes to Ray."""

    id: str
    """Area letter and number. Where one subject has two halves of different level, the second one has a trailing
    letter: ``b`` for a SHOULD (``G3b``), ``r`` for a REPORT (``D5r``)."""
    area: Area
    level: Level
    sentence: str
    """What the transport owes: one plain sentence, present tense, that an author understands without this project."""
    source: str
    """Where it is written or relied upon, separated by ``; ``, the strongest first: ``doc`` with a class member or a
    page of Ray's documentation, ``src`` with a file of Ray and a name in it, ``ray#N`` or ``nixl#N``."""
    suffers: str
    """One sentence: what a user of Ray would see if it were broken."""
    applies: Applies = Applies.ALWAYS
    engines: frozenset[str] = EVERYWHERE
    """The engines that can bring about the situation it speaks of."""
    since: str = "2.57"
    """The first version of Ray that relies on it; all of them from the oldest that this suite works on if not said."""
    untested: str = ""
    """Why there is no check, for a clause that cannot be tested (yet)."""
    # These two are not told again in reports, and so are no part of what makes a clause the same.
    why: str = field(default="", compare=False)
    """What Ray does, or does not do, that makes the transport owe it."""
    fix: str = field(default="", compare=False)
    """What to do in a transport that breaks it."""
