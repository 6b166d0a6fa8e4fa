"""What programs consist of: one small frozen class for each thing that a user of RDT, or bad luck, can do.

Processes go by ``driver``, ``a``, ``b`` and ``c``, objects by ``x1``, ``x2`` …, values that a process keeps by ``v1``,
``v2`` …, each in the order in which a program makes them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

DRIVER = "driver"
ACTORS = ("a", "b", "c")


class Area(str, enum.Enum):
    """The rows of the table of what RDT does."""

    REGISTRATION = "registration"
    RETURNS = "task returns"
    PASSING = "passing refs"
    PUT_GET = "put and get"
    BUFFERS = "target buffers, target device"
    WAIT_FREED = "wait_tensor_freed"
    TWO_SIDED = "two-sided orchestration"
    FAILURES = "failures"
    FREEING = "freeing"


class Shape(str, enum.Enum):
    """How the tensors lie in a value."""

    LIST = "a list of tensors"
    SINGLE = "a tensor"
    NESTED = "tensors nested in dicts and tuples"
    TWICE = "a list with the same tensor twice"
    NONE = "a value without tensors"


@dataclass(frozen=True)
class Build:
    """A process makes tensors and keeps them."""

    value: str
    process: str
    shape: Shape
    areas = ()

    def __str__(self) -> str:
        return f"{self.value} = {self.process} makes {self.shape.value}"


@dataclass(frozen=True)
class Return:
    """A task returns a value that its actor keeps."""

    obj: str
    actor: str
    value: str
    areas = (Area.RETURNS,)

    def __str__(self) -> str:
        return f"{self.obj} = a task of {self.actor} returns {self.value}"


@dataclass(frozen=True)
class Fail:
    """A task raises instead of returning something."""

    obj: str
    actor: str
    areas = (Area.FAILURES,)

    def __str__(self) -> str:
        return f"{self.obj} = a task of {self.actor} raises"


@dataclass(frozen=True)
class Put:
    """A process puts a value that it keeps."""

    obj: str
    process: str
    value: str
    areas = (Area.PUT_GET,)

    def __str__(self) -> str:
        return f"{self.obj} = {self.process} puts {self.value}"


@dataclass(frozen=True)
class Consume:
    """A task takes objects as arguments and keeps them."""

    value: str
    actor: str
    objs: tuple[str, ...]
    named: tuple[str, ...] = ()
    areas = (Area.PASSING,)

    def __str__(self) -> str:
        arguments = [*self.objs, *(f"key={obj}" for obj in self.named)]
        return f"{self.value} = a task of {self.actor} takes {', '.join(arguments)}"


@dataclass(frozen=True)
class Get:
    """A process gets objects and keeps them.

    Args:
        buffers: the value whose first element is where the tensors of the one object are to go; empty for none.
    """

    value: str
    process: str
    objs: tuple[str, ...]
    timeout: float | None = None
    through_store: bool = False
    buffers: str = ""

    @property
    def areas(self) -> tuple[Area, ...]:
        """What it is about."""
        return (Area.PUT_GET, Area.BUFFERS) if self.buffers else (Area.PUT_GET,)

    def __str__(self) -> str:
        how = "" if self.timeout is None else f" within {self.timeout:g} s"
        how += " through the object store" if self.through_store else ""
        how += f" into {self.buffers}" if self.buffers else ""
        return f"{self.value} = {self.process} gets {', '.join(self.objs)}{how}"


class Fit(str, enum.Enum):
    """How target buffers go with the tensors that are to be written into them."""

    GOOD = "fit"
    FEWER = "are one too few"
    SHORTER = "have another shape"
    OTHER_DTYPE = "have another dtype"
    GAPS = "are not contiguous"


@dataclass(frozen=True)
class MakeBuffers:
    """A process makes target buffers for an object."""

    value: str
    process: str
    obj: str
    fit: Fit
    areas = (Area.BUFFERS,)

    def __str__(self) -> str:
        return f"{self.value} = {self.process} makes buffers that {self.fit.value} for {self.obj}"


@dataclass(frozen=True)
class GetOnto:
    """The driver gets an object onto a device."""

    value: str
    obj: str
    device: str
    areas = (Area.BUFFERS,)

    def __str__(self) -> str:
        return f"{self.value} = {DRIVER} gets {self.obj} onto {self.device}"


@dataclass(frozen=True)
class Change:
    """A process writes into the tensors of a value that it keeps."""

    process: str
    value: str
    areas = ()

    def __str__(self) -> str:
        return f"{self.process} writes into {self.value}"


@dataclass(frozen=True)
class Look:
    """What a value that a process keeps is now."""

    process: str
    value: str
    areas = ()

    def __str__(self) -> str:
        return f"look at {self.value} of {self.process}"


@dataclass(frozen=True)
class Drop:
    """The driver drops its reference."""

    obj: str
    areas = (Area.FREEING,)

    def __str__(self) -> str:
        return f"drop {self.obj}"


@dataclass(frozen=True)
class WaitFreed:
    """A process waits until no object holds the first tensor of a value that it keeps."""

    process: str
    value: str
    seconds: float
    areas = (Area.WAIT_FREED,)

    def __str__(self) -> str:
        return f"{self.process} waits {self.seconds:g} s at most until {self.value} is freed"


@dataclass(frozen=True)
class Kept:
    """Whether a process still knows or keeps anything of an object when all is at rest."""

    process: str
    obj: str
    areas = (Area.FREEING,)

    def __str__(self) -> str:
        return f"what {self.process} keeps of {self.obj}"


@dataclass(frozen=True)
class Unblocked:
    """Whether the thread on which an actor sends and receives becomes free within some seconds."""

    actor: str
    seconds: float
    areas = (Area.FAILURES,)

    def __str__(self) -> str:
        return f"{self.actor} can send and receive again within {self.seconds:g} s"


class Mishap(str, enum.Enum):
    """What can go wrong inside one call of a transport."""

    RAISE = "raises"
    TIME_OUT = "raises TimeoutError"
    SLOW = "takes 0.5 s"
    ODD_DEVICE = "names a device that nobody registered"


@dataclass(frozen=True)
class Trouble:
    """The next call of a method of the transport in a process goes wrong."""

    process: str
    method: str
    mishap: Mishap = Mishap.RAISE
    areas = (Area.FAILURES,)

    def __str__(self) -> str:
        return f"the next {self.method} in {self.process} {self.mishap.value}"


@dataclass(frozen=True)
class Kill:
    """An actor dies."""

    actor: str
    areas = (Area.FAILURES,)

    def __str__(self) -> str:
        return f"{self.actor} is killed"


@dataclass(frozen=True)
class Restart:
    """A killed actor comes again, empty."""

    actor: str
    areas = (Area.REGISTRATION,)

    def __str__(self) -> str:
        return f"{self.actor} is started again"


class Candidate(str, enum.Enum):
    """What the driver may try to register."""

    SAME_NAME = "the transport under its own name again"
    OTHER_CASE = "the transport under its own name in lower case"
    NO_TRANSPORT = "a class that is no transport under a new name"
    NEW_NAME = "the transport under a new name in lower case, and then that name in upper case"


@dataclass(frozen=True)
class Register:
    """The driver registers a transport."""

    candidate: Candidate
    areas = (Area.REGISTRATION,)

    def __str__(self) -> str:
        return f"register {self.candidate.value}"


Simple = (
    Build
    | Return
    | Fail
    | Put
    | Consume
    | Get
    | MakeBuffers
    | GetOnto
    | Change
    | Look
    | Drop
    | WaitFreed
    | Kept
    | Unblocked
    | Trouble
    | Kill
    | Restart
    | Register
)


@dataclass(frozen=True)
class Together:
    """Steps that are all begun before the end of any is waited for.

    Args:
        busy: an actor whose main thread does something else until they have all begun, so that objects it returns do
            not exist before; empty for none.
        steps: what is begun, in order.
    """

    steps: tuple[Simple, ...]
    busy: str = ""

    @property
    def areas(self) -> tuple[Area, ...]:
        """What it is about."""
        return tuple(dict.fromkeys(area for step in self.steps for area in step.areas))

    def __str__(self) -> str:
        head = f"while {self.busy} is busy" if self.busy else "at once"
        return f"{head}: {'; '.join(map(str, self.steps))}"


Step = Simple | Together
