"""Payloads of numpy arrays."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rdt_conformance.payloads import numpy_memory
from rdt_conformance.payloads.base import DEFAULT_MAX_BYTES, DEFAULT_MAX_TENSORS
from rdt_conformance.payloads.catalogue import every_contiguous, every_view, plain_traits
from rdt_conformance.payloads.contents import Memory
from rdt_conformance.payloads.numpy_oddities import OddNumpyPayload
from rdt_conformance.payloads.recipes import ArrayPayload, ArrayRecipe, Look, raw_elements
from rdt_conformance.payloads.strategies import (
    ArrayFamily,
    ElementType,
    Limits,
    Wrap,
    families,
    payloads,
    simple_recipes,
    small_view_recipes,
)
from rdt_conformance.payloads.watching import Fingerprint, Guard, Lifetimes, arena

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ORDINARY = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""What every transport must take, the simplest first."""

_SWAPPED = ">" if sys.byteorder == "little" else "<"

# Without long double and structures with gaps: a copy need not keep their padding.
_UNUSUAL = (
    "uint16", "uint32", "uint64", "complex64", "complex128", "datetime64[ns]", "timedelta64[us]", "S1", "S5",
    "U1", "U3", "V7", f"{_SWAPPED}i4", f"{_SWAPPED}f8", f"{_SWAPPED}U2", [("number", "i4"), ("text", "S3")],
    [("inner", [("x", "f4"), ("y", f"{_SWAPPED}f4")], (2,)), ("flag", "u1")],
)  # fmt: skip

_DTYPES = {str(np.dtype(each)): np.dtype(each) for each in (*_ORDINARY, *_UNUSUAL)}


def _element_type(dtype: np.dtype) -> ElementType:
    mask = b""
    if dtype.kind == "b":
        mask = b"\x01"
    elif dtype.kind == "U":
        # Characters up to U+7FFF: all of them exist.
        mask = np.full(dtype.itemsize // 4, 0x7FFF, f"{dtype.byteorder}u4").tobytes()
    wraps = [Wrap(origin="read-only memory"), Wrap(origin="unaligned memory", refusable=True)]
    return ElementType(str(dtype), dtype.itemsize, mask, tuple(wraps))


@lru_cache
def _element_types(names: tuple[str, ...]) -> tuple[ElementType, ...]:
    return tuple(_element_type(_DTYPES[name]) for name in names)


@dataclass(frozen=True, repr=False)
class NumpyPayload(ArrayPayload):
    """An ordered list of numpy arrays."""

    @classmethod
    def build_all(cls, payloads: Sequence[ArrayPayload], device: str = "cpu") -> list[list[np.ndarray]]:
        """The arrays of several payloads; equal recipes become one array, equal memories are shared."""
        _expect_host(device)
        memories: dict[Memory, np.ndarray] = {}
        arrays: dict[ArrayRecipe, np.ndarray] = {}
        for recipe in (recipe for payload in payloads for recipe in payload.recipes):
            if recipe not in arrays:
                arrays[recipe] = _laid_out(recipe, memories)
        return [[arrays[recipe] for recipe in payload.recipes] for payload in payloads]

    @staticmethod
    def look(received: object) -> Look:
        """What was received, ready to be compared; see `ArrayPayload.look`."""
        return numpy_memory.look(received)


def _laid_out(recipe: ArrayRecipe, memories: dict[Memory, np.ndarray]) -> np.ndarray:
    layout, memory = recipe.layout, recipe.memory
    if memory not in memories:
        memories[memory] = _allocate(memory, layout.shape if layout.contiguous else (layout.elements,))
    base = memories[memory]
    if layout.contiguous and base.shape == layout.shape:
        # An array that is its whole memory owns it.
        return base
    array = raw_elements(base.reshape(-1).view(np.uint8), memory.itemsize, layout.shape, layout.strides, layout.offset)
    return array.view(_DTYPES[memory.dtype])


def _allocate(memory: Memory, shape: Sequence[int]) -> np.ndarray:
    """A memory with its contents, as one contiguous array."""
    dtype = _DTYPES[memory.dtype]
    if memory.origin == "unaligned memory":
        array = np.ndarray(shape, dtype, np.empty(memory.nbytes + 1, np.uint8), offset=1)
    else:
        array = np.empty(shape, dtype)
    memory.fill(array.reshape(-1).view(np.uint8))
    array.setflags(write=memory.origin != "read-only memory")
    return array


class NumpyKind:
    """All that the suite knows about numpy; see `rdt_conformance.payloads.base.PayloadKind` for every method.

    Arrays live in host memory: wherever a device can be named, it has to be ``cpu``.
    """

    data_type = np.ndarray
    writable = has_parts = in_chosen_memory = True

    def payloads(
        self,
        *,
        device: str = "cpu",
        min_tensors: int = 0,
        max_tensors: int = DEFAULT_MAX_TENSORS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        plain: bool = False,
        refusable: bool = True,
        avoid: frozenset[str] = frozenset(),
    ) -> SearchStrategy[NumpyPayload]:
        """Payloads of many arrays; they shrink towards one small plain float32 array."""
        _expect_host(device)
        known = _element_types(_ORDINARY if plain else tuple(_DTYPES))
        fitting = tuple(each for each in known if each.itemsize <= max_bytes)
        limits = Limits(fitting, max_bytes, plain, refusable, backwards=True, avoid=avoid)
        return payloads(NumpyPayload, limits, min_tensors, max_tensors)

    def every_contiguous(self, device: str = "cpu") -> list[NumpyPayload]:
        """Payloads of one contiguous array: every dtype, every number of dimensions."""
        _expect_host(device)
        return every_contiguous(NumpyPayload, _element_types(tuple(_DTYPES)))

    def every_view(self, device: str = "cpu") -> list[NumpyPayload]:
        """Payloads of arrays that are more than contiguous."""
        _expect_host(device)
        return every_view(NumpyPayload, _element_types(tuple(_DTYPES)), backwards=True)

    def families(
        self, *, device: str = "cpu", max_bytes: int = DEFAULT_MAX_BYTES, avoid: frozenset[str] = frozenset()
    ) -> SearchStrategy[ArrayFamily]:
        """Families of plain dtypes: the same array, base and view, overlapping and neighbouring views."""
        _expect_host(device)
        return families(NumpyPayload, _element_types(_ORDINARY), max_bytes, avoid)

    def plain_traits(self, device: str = "cpu") -> list[tuple[str, NumpyPayload]]:
        """Every trait that plain payloads may have, with a payload that has no other."""
        _expect_host(device)
        return plain_traits(NumpyPayload, _element_types(_ORDINARY), ElementType("uint8", 1))

    def simple(self, nbytes: int, count: int = 1, seed: int = 0) -> NumpyPayload:
        """Contiguous arrays of bytes."""
        return NumpyPayload(simple_recipes(ElementType("uint8", 1), nbytes, count, seed))

    def small_view(self, nbytes: int, whole: int) -> NumpyPayload:
        """An array of bytes from the middle of a larger memory."""
        return NumpyPayload(small_view_recipes(ElementType("uint8", 1), nbytes, whole))

    def refusable_payloads(self, device: str = "cpu") -> list[OddNumpyPayload]:
        """What a transport may refuse but must never carry wrongly."""
        return OddNumpyPayload.available()

    def on_another_device(self, device: str = "cpu") -> list[np.ndarray]:
        """None: every array lies in the memory of the CPU."""
        return []

    def buffers(self, payload: ArrayPayload, device: str = "cpu") -> list[np.ndarray]:
        """Contiguous target buffers, each holding the inverse of what is to arrive in it."""
        _expect_host(device)
        buffers = [np.empty(recipe.layout.shape, _DTYPES[recipe.memory.dtype]) for recipe in payload.recipes]
        self.overwrite(buffers, payload.inverse())
        return buffers

    def guarded_buffers(self, payload: ArrayPayload, device: str = "cpu") -> tuple[list[np.ndarray], Guard]:
        """Target buffers that are views of one larger memory, and a guard over the rest of that memory."""
        _expect_host(device)
        places, size = arena([recipe.nbytes for recipe in payload.recipes])
        memory = _allocate(Memory("uint8", 1, size, seed=size), (size,))
        buffers = [
            np.ndarray(recipe.layout.shape, _DTYPES[recipe.memory.dtype], memory, begin)
            for recipe, (begin, _) in zip(payload.recipes, places, strict=True)
        ]
        self.overwrite(buffers, payload.inverse())
        return buffers, Guard(lambda: memory, places)

    def room(self, payload: ArrayPayload, device: str = "cpu") -> np.ndarray:
        """Memory for a plain payload or a smaller one."""
        _expect_host(device)
        _, size = arena([recipe.nbytes for recipe in payload.recipes])
        return np.empty(size, np.uint8)

    def build_in(self, room: np.ndarray, payload: ArrayPayload) -> list[np.ndarray]:
        """The arrays of a plain payload in a room, none a view of the room's own array."""
        places, _ = arena([recipe.nbytes for recipe in payload.recipes])
        arrays = [
            np.frombuffer(room[begin:end].data, np.uint8)
            .view(_DTYPES[recipe.memory.dtype])
            .reshape(recipe.layout.shape)
            for recipe, (begin, end) in zip(payload.recipes, places, strict=True)
        ]
        self.overwrite(arrays, payload)
        return arrays

    def fingerprint(self, tensors: Sequence[np.ndarray]) -> Fingerprint:
        """What can be seen of arrays, and all bytes of the memories that they lie in."""
        return Fingerprint.take(tensors, numpy_memory.facts)

    def overwrite(self, tensors: Sequence[np.ndarray], payload: ArrayPayload) -> None:
        """Write a payload's bytes into arrays in place."""
        for array, recipe in zip(tensors, payload.recipes, strict=True):
            raw = numpy_memory.raw(array)
            raw[...] = recipe.values().view(raw.dtype).reshape(raw.shape)

    def metas(self, tensors: Sequence[np.ndarray]) -> list[tuple[tuple[int, ...], np.dtype]]:
        """The shape and dtype of each array."""
        return [(array.shape, array.dtype) for array in tensors]

    def tracked(self, payload: ArrayPayload, device: str = "cpu") -> tuple[list[np.ndarray], Lifetimes]:
        """The arrays of a payload, and whether anybody still refers to their memories."""
        arrays = NumpyPayload.build_all([payload], device)[0]
        owners = {id(owner): weakref.ref(owner) for owner in map(numpy_memory.owner_of, arrays)}
        return arrays, Lifetimes([lambda owner=owner: owner() is None for owner in owners.values()])

    def share_memory(self, a: np.ndarray, b: np.ndarray) -> bool:
        """Whether two arrays have a byte in common, by address."""
        return numpy_memory.span(a).overlaps(numpy_memory.span(b))

    def traits(self, tensors: Sequence[np.ndarray], device: str = "cpu") -> list[str]:
        """How arrays deviate from contiguous, writable ones of the plain type."""
        _expect_host(device)
        return [
            f"tensor {index}: {words}"
            for index, array in enumerate(tensors)
            for words in numpy_memory.deviations(array)
        ]


def _expect_host(device: str) -> None:
    if device != "cpu":
        raise ValueError(f"numpy arrays live in host memory, not on device {device!r}")


KIND = NumpyKind()
