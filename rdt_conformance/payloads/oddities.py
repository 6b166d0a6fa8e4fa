"""Tensors that are no plain memory. A transport may refuse them; what it accepts has to arrive as it was."""

from __future__ import annotations

import warnings
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rdt_conformance.payloads.recipes import list_differences

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Oddity:
    """One way to be no plain memory."""

    make: Callable[[], Any]
    contents: Callable[[Any], object]
    """All that such a tensor says, to be compared with ``==``; raises for a tensor of another kind."""
    may_crash: bool = False
    """See `OddPayload.may_crash`."""


@dataclass(frozen=True, repr=False)
class OddPayload(ABC):
    """One tensor that is no plain memory; see `rdt_conformance.payloads.base.Refusable`."""

    oddities: ClassVar[Mapping[str, Oddity]]

    name: str
    count: ClassVar[int] = 1

    @classmethod
    def available(cls, device: str = "cpu") -> list[Self]:
        """Those that the installed version of the array library can make on a type of device."""
        found = []
        for name in cls.oddities:
            try:
                cls(name).build(device)
            except Exception:
                # Each is optional in its library, and fails in its own way where it is left out.
                continue
            found.append(cls(name))
        return found

    @property
    def may_crash(self) -> bool:
        """Whether a transport that carries it as bytes, instead of refusing it, can crash its process."""
        return self.oddities[self.name].may_crash

    @property
    def nbytes(self) -> int:
        """Bytes that its elements have, or would have if they were stored plainly."""
        tensor = self.build()[0]
        return tensor.nbytes

    def build(self, device: str = "cpu") -> list[Any]:
        """The tensor, a new one with every call."""
        with warnings.catch_warnings():
            # Libraries warn that some of these are prototypes and that others are on their way out.
            warnings.simplefilter("ignore")
            return [self.oddities[self.name].make()]

    def differences(self, received: Sequence[Any]) -> list[str]:
        """How what was received differs from what was sent; empty if it does not."""
        return list_differences(1, received, self._difference)

    def _difference(self, _: int, got: object) -> str:
        contents = self.oddities[self.name].contents
        sent = contents(self.build()[0])
        try:
            arrived = contents(got)
        except Exception as error:
            # Of whatever else it may be, nothing is known but that it lacks something.
            words = str(error).partition(". ")[0]  # torch goes on for pages
            return f"is a plain or other {type(got).__name__}, sent {self.name} ({words})"
        return "" if arrived == sent else f"differs in dtype, shape or contents from the {self.name} that was sent"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the words when Hypothesis prints an example, not every field."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        return f"1 tensor: {self.name}"
