"""Recipes of tensors and the comparison of what arrived with them; the same for every array library."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rdt_conformance.payloads.contents import Memory
from rdt_conformance.payloads.layouts import Layout, contiguous

if TYPE_CHECKING:
    from typing_extensions import Self

_MOST_SENTENCES = 8
_MOST_SUSPECTS = 64


class Unreadable(Exception):
    """Something has no plain bytes to compare; the message completes the sentence "tensor 3: …"."""


@dataclass(frozen=True)
class Look:
    """A tensor in hand, as far as a comparison goes."""

    dtype: str
    shape: tuple[int, ...]
    raw: np.ndarray
    """Its elements as opaque bytes, see `raw_elements`."""
    flip: bytes = b""
    """Bits of an element that the array library turns over when it reads, as for a lazy conjugate."""

    def values(self) -> np.ndarray:
        """The bytes of its elements in row-major order, flat; not a copy if they lie like this already."""
        return flipped(np.ascontiguousarray(self.raw).reshape(-1).view(np.uint8), self.flip)


def in_byte_order_of(dtype: str, look: Look) -> Look:
    """A tensor as if its numbers were stored in the byte order of a numpy dtype, if that is all that they differ in.

    Either order holds the same values, and Python's own pickling turns one into the other.
    """
    try:
        wanted = np.dtype(dtype)
    except TypeError:  # of another library
        return look
    other = wanted.newbyteorder()
    if look.dtype != str(other):
        return look
    swapped = look.raw.view(other).astype(wanted)
    return dataclasses.replace(look, dtype=dtype, raw=swapped.view(opaque(wanted.itemsize)))


def opaque(itemsize: int) -> str:
    """The numpy dtype of an element that is nothing but bytes; numpy copies numbers fastest."""
    return f"u{itemsize}" if itemsize in (1, 2, 4, 8) else f"V{itemsize}"


def raw_elements(
    memory: np.ndarray, itemsize: int, shape: Sequence[int], strides: Sequence[int], offset: int
) -> np.ndarray:
    """The elements that lie in a flat array of bytes, as opaque numbers or bytes of the right size.

    Args:
        memory: flat, uint8.
        itemsize: bytes of one element.
        shape: of the result.
        strides: in elements.
        offset: of the first element, in elements.
    """
    return np.ndarray(shape, opaque(itemsize), memory, offset * itemsize, [stride * itemsize for stride in strides])


def flipped(data: np.ndarray, flip: bytes) -> np.ndarray:
    """Bytes of elements with the bits of `flip` turned over in each; `data` itself if there is nothing to turn."""
    if not flip:
        return data
    return (data.reshape(-1, len(flip)) ^ np.frombuffer(flip, np.uint8)).reshape(-1)


@dataclass(frozen=True)
class ArrayRecipe:
    """One tensor: what its memory holds, and how it lies in there.

    Equal recipes within one payload are the same tensor; recipes of equal memories share that memory.
    """

    memory: Memory
    layout: Layout
    wrap: str = ""
    """What is done to the tensor after that; empty: nothing. Names are those of the array library's module."""
    flip: bytes = b""
    """See `Look.flip`."""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, each counted as often as it appears."""
        return int(np.prod(self.layout.shape, dtype=np.int64)) * self.memory.itemsize

    def values(self) -> np.ndarray:
        """The bytes of its elements in row-major order, flat; perhaps read-only."""
        contents = self.memory.contents()
        if self.layout.contiguous:
            return flipped(contents, self.flip)
        layout = self.layout
        raw = raw_elements(contents, self.memory.itemsize, layout.shape, layout.strides, layout.offset)
        return Look(self.memory.dtype, layout.shape, raw, self.flip).values()

    def pieces(self) -> Iterator[np.ndarray]:
        """The same bytes in order, in pieces; small ones where that saves memory."""
        if self.layout.contiguous and not self.flip:
            return self.memory.pieces()
        return iter((self.values(),))

    def inverse(self) -> Self:
        """The same tensor holding other bytes: every bit that may differ does."""
        memory = dataclasses.replace(self.memory, inverted=not self.memory.inverted)
        return dataclasses.replace(self, memory=memory)

    def plain(self, number: int) -> Self:
        """A contiguous tensor of the same dtype and shape; for each number one with contents and memory of its own."""
        layout = contiguous(self.layout.shape)
        seed = (self.memory.seed << 20) + number
        memory = dataclasses.replace(self.memory, elements=layout.elements, seed=seed, origin="")
        return dataclasses.replace(self, memory=memory, layout=layout, wrap="", flip=b"")

    def difference(self, got: Look) -> str:
        """How a tensor differs from this one, completing the sentence "tensor 3: …"; empty if it does not."""
        if got.dtype != self.memory.dtype:
            got = in_byte_order_of(self.memory.dtype, got)
        if got.dtype != self.memory.dtype:
            return f"has dtype {got.dtype}, sent {self.memory.dtype}"
        if got.shape != self.layout.shape:
            return f"has shape {list(got.shape)}, sent {list(self.layout.shape)}"
        values = got.values()
        wrong, first, start = 0, "", 0
        for sent in self.pieces():
            here = values[start : start + sent.size]
            if not np.array_equal(here, sent):
                here = here.copy()  # a transport that is not done yet may write at this very moment
                places = np.flatnonzero(here != sent)
                if not places.size:
                    return "was still being written while it was compared"
                wrong += places.size
                first = first or self._sentence(start + int(places[0]), int(here[places[0]]), int(sent[places[0]]))
            start += sent.size
        return f"{first}; {wrong} of {self.nbytes} bytes differ" if first else ""

    def _sentence(self, place: int, got: int, sent: int) -> str:
        element = [int(index) for index in np.unravel_index(place // self.memory.itemsize, self.layout.shape or 1)]
        return f"byte {place} is 0x{got:02X}, sent 0x{sent:02X} (element {element})"

    def __str__(self) -> str:
        shape = ",".join(map(str, self.layout.shape))
        words = [f"{self.memory.dtype}[{shape}]", self.layout.name, self.wrap, self.memory.origin]
        return " ".join(word for word in words if word)


@dataclass(frozen=True, repr=False)
class ArrayPayload(ABC):
    """An ordered list of tensors; see `rdt_conformance.payloads.base.Payload`."""

    recipes: tuple[ArrayRecipe, ...]

    @classmethod
    @abstractmethod
    def build_all(cls, payloads: Sequence[Self], device: str = "cpu") -> list[list[Any]]:
        """The tensors of several payloads; equal recipes become one tensor, equal memories are shared."""

    @staticmethod
    @abstractmethod
    def look(received: object) -> Look:
        """What was received, ready to be compared.

        Raises:
            Unreadable: it is not a tensor of this library with plain bytes.
        """

    def build(self, device: str = "cpu") -> list[Any]:
        """The tensors, new ones with every call."""
        return self.build_all([self], device)[0]

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return len(self.recipes)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return sum(recipe.nbytes for recipe in self.recipes)

    def inverse(self) -> Self:
        """The same tensors with other bytes: every bit that may differ does."""
        return dataclasses.replace(self, recipes=tuple(recipe.inverse() for recipe in self.recipes))

    def plain(self) -> Self:
        """Contiguous tensors of the same dtypes and shapes, each alone in its memory."""
        return dataclasses.replace(self, recipes=tuple(recipe.plain(n) for n, recipe in enumerate(self.recipes)))

    def differences(self, received: Sequence[Any]) -> list[str]:
        """How what was received differs from this, one sentence a tensor; empty if it does not."""
        return list_differences(self.count, received, self._difference)

    def _difference(self, index: int, received: object) -> str:
        got = self.look(received)
        difference = self.recipes[index].difference(got)
        if difference and (owner := self._owner(got, index)) is not None:
            difference += f"; these are the bytes of tensor {owner}"
        return difference

    def _owner(self, got: Look, index: int) -> int | None:
        """The other tensor of this payload whose bytes these are, if there is one."""
        for other, recipe in enumerate(self.recipes[:_MOST_SUSPECTS]):
            if other != index and not recipe.difference(got):
                return other
        return None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the words when Hypothesis prints an example, not every field."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        noun = "tensor" if self.count == 1 else "tensors"
        return f"{self.count} {noun}: {', '.join(_words(self.recipes))}" if self.count else f"0 {noun}"


def list_differences(count: int, received: object, difference: Callable[[int, object], str]) -> list[str]:
    """Compare a list of tensors with what was sent.

    Args:
        count: how many tensors were sent.
        received: whatever a transport returned for them.
        difference: called with an index and the tensor received there; says how it differs, or "".

    Returns:
        One sentence for each tensor that differs, the first few of them; empty if none does.
    """
    if not isinstance(received, Sequence) or isinstance(received, str | bytes):
        return [f"a {type(received).__name__} arrived instead of a list of tensors"]
    if len(received) != count:
        return [f"{len(received)} tensors arrived, sent {count}"]
    found = []
    for index, tensor in enumerate(received):
        try:
            words = difference(index, tensor)
        except Unreadable as unreadable:
            words = str(unreadable)
        if words:
            found.append(f"tensor {index}: {words}")
    more = len(found) - _MOST_SENTENCES
    return found if more <= 0 else [*found[:_MOST_SENTENCES], f"{more} more tensors differ"]


def _words(recipes: Sequence[ArrayRecipe]) -> list[str]:
    """The recipes in words; runs of similar ones as one, and what shares memory with an earlier one as such."""
    words: list[tuple[str, int]] = []
    first: dict[object, int] = {}
    for index, recipe in enumerate(recipes):
        word = str(recipe)
        if recipe in first:
            word = f"tensor {first[recipe]} again"
        elif recipe.memory in first:
            word += f" in the memory of tensor {first[recipe.memory]}"
        first.setdefault(recipe, index)
        first.setdefault(recipe.memory, index)
        if words and words[-1][0] == word:
            words[-1] = (word, words[-1][1] + 1)
        else:
            words.append((word, 1))
    return [word if times == 1 else f"{times} of {word}" for word, times in words]
