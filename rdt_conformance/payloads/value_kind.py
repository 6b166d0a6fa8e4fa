"""What an author tells about a type of value that this suite does not know: how to make, compare and describe them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from hypothesis.strategies import SearchStrategy

GivenMemory: TypeAlias = "Callable[[int], np.ndarray]"
"""Gives memory of so many bytes: a flat, writable array of uint8 that begins at a multiple of 64."""

Form: TypeAlias = Hashable
"""All that decides what a value looks like, but for its contents: plain data, equal by value, that pickles."""


OTHER_CONTENTS = 1 << 62
"""The bit of a seed that tells a value from its inverse."""


def contents(nbytes: int, seed: int) -> np.ndarray:
    """Bytes to build a value of, flat and read-only: a function of the seed, the same in every process.

    Those of ``seed ^ OTHER_CONTENTS`` differ in every bit.
    """
    from rdt_conformance.payloads.contents import Memory

    return Memory("uint8", 1, nbytes, seed & ~OTHER_CONTENTS, inverted=bool(seed & OTHER_CONTENTS)).contents()


class ValueKind(ABC):
    """The payload kind of a type of value, for ``TransportProfile(..., payload_kind=MyKind)``.

    An instance is built without arguments in every process that makes or compares values, so it keeps nothing. A value
    is made of a form and a seed: the source builds it, and wherever it arrives it is built again and compared, so that
    no transport is ever asked whether it was right. Values are never written to once they are built.

    The suite sends, in this order of importance: every form of `forms` alone; what `strategy` draws, several at once;
    the same value several times, and parts of values, if there are any; what `odd_forms` names.
    """

    data_type: ClassVar[type]
    """As it is registered: Ray takes values of exactly this type out of what a task returns. They can be referred to
    weakly, as those of any class in Python can."""
    in_given_memory: ClassVar[bool] = False
    """`build` lays all that a value holds into the memory that it is given. Then leaks are found that hide behind the
    value itself (G6), and memory is used again for other values (G8). If not, leaks of the value alone are found."""

    @abstractmethod
    def forms(self) -> Mapping[str, Form]:
        """One form for everything that a transport might get wrong, by the name that reports have for it.

        The first is the plainest: one that every transport of this type must take. Each is small.
        """

    @abstractmethod
    def sized(self, nbytes: int) -> Form:
        """A plain form of about so many bytes, at least 1, for checks that need many or few."""

    @abstractmethod
    def nbytes(self, form: Form) -> int:
        """About how many bytes a value of this form holds: time limits go by it."""

    @abstractmethod
    def build(self, form: Form, seed: int, memory: GivenMemory) -> Any:
        """A new value, the same in every process.

        Args:
            form: of the value.
            seed: of its contents, at least 0 and below 2**63; values of different seeds differ wherever they can. See
                `contents`.
            memory: gives memory; call it as often as needed, or not at all.
        """

    @abstractmethod
    def difference(self, sent: Any, received: Any) -> str:
        """How a value that arrived differs from the one that was sent, completing the sentence "value 3: …".

        It must not use what a transport uses to carry values, or both may be wrong in the same way.

        Args:
            sent: built here anew.
            received: an instance of `data_type`, perhaps broken; it is not modified.

        Returns:
            A few plain words, the first difference; empty if there is none that a user could see.
        """

    @abstractmethod
    def meta(self, value: Any) -> tuple[Any, Any]:
        """The shape and dtype by which ``tensor_meta`` has to list it; `ANYTHING` for what does not matter."""

    def strategy(self, max_bytes: int) -> SearchStrategy[Form]:
        """Any form of up to about so many bytes, the plainest first; those of `forms` unless this is overridden.

        Of a transport that does not carry some form of `forms`, only the others are sent where something else is
        checked.
        """
        from hypothesis import strategies as st

        fitting = [form for form in self.forms().values() if self.nbytes(form) <= max_bytes]
        return st.sampled_from(fitting or list(self.forms().values()))

    def part(self, value: Any) -> Any:
        """A small part of a value, a hundredth of a large one at most, that lies in the memory of the whole.

        Override it where there is such a thing, such as a slice; it gives the same of equal values.
        """
        raise NotImplementedError(f"values of {type(self).__name__} have no parts")

    def odd_forms(self) -> Mapping[str, Form]:
        """Forms that a transport may well refuse, when it extracts metadata, but must not carry wrongly."""
        return {}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))
