"""Payloads of torch tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from rdt_conformance.payloads import torch_memory
from rdt_conformance.payloads.base import DEFAULT_MAX_BYTES, DEFAULT_MAX_TENSORS
from rdt_conformance.payloads.catalogue import every_contiguous, every_view, plain_traits
from rdt_conformance.payloads.contents import Memory
from rdt_conformance.payloads.recipes import ArrayPayload, ArrayRecipe, Look
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
from rdt_conformance.payloads.torch_oddities import OddTorchPayload
from rdt_conformance.payloads.watching import Fingerprint, Guard, Lifetimes, arena

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ORDINARY = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
"""What every transport must take: dtypes that NCCL and Gloo know, the simplest first."""

_LAZILY_NEGATED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, repr=False)
class TorchPayload(ArrayPayload):
    """An ordered list of torch tensors."""

    @classmethod
    def build_all(cls, payloads: Sequence[ArrayPayload], device: str = "cpu") -> list[list[torch.Tensor]]:
        """The tensors of several payloads; equal recipes become one tensor, equal memories are shared."""
        workshop = _Workshop(device)
        return [[workshop.tensor(recipe) for recipe in payload.recipes] for payload in payloads]

    @staticmethod
    def look(received: object) -> Look:
        """What was received, ready to be compared; see `ArrayPayload.look`."""
        return torch_memory.look(received)


class _Workshop:
    """Builds tensors, each recipe and each memory once."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._memories: dict[Memory, torch.Tensor] = {}
        self._tensors: dict[ArrayRecipe, torch.Tensor] = {}

    def tensor(self, recipe: ArrayRecipe) -> torch.Tensor:
        """The tensor of a recipe."""
        if recipe not in self._tensors:
            self._tensors[recipe] = _wrapped(self._laid_out(recipe), recipe.wrap)
        return self._tensors[recipe]

    def _laid_out(self, recipe: ArrayRecipe) -> torch.Tensor:
        layout, memory = recipe.layout, recipe.memory
        if memory not in self._memories:
            shape = layout.shape if layout.contiguous else (layout.elements,)
            self._memories[memory] = _allocate(memory, shape, self._device)
        base = self._memories[memory]
        if layout.contiguous and base.shape == layout.shape:
            # A tensor that is its whole memory is no view of anything.
            return base
        return base.as_strided(layout.shape, layout.strides, layout.offset)


def _allocate(memory: Memory, shape: Sequence[int], device: str) -> torch.Tensor:
    """A memory with its contents, as one contiguous tensor."""
    dtype = getattr(torch, memory.dtype)
    if memory.origin == "numpy memory" and memory.nbytes and torch.device(device).type == "cpu":
        # Aligned to its elements and no further. With less, torch's own kernels crash.
        room = np.empty(memory.itemsize + memory.nbytes, np.uint8)
        tensor = torch.from_numpy(room[memory.itemsize :]).view(dtype).view(shape)
    elif memory.origin == "inference mode":
        with torch.inference_mode():
            tensor = torch.empty(shape, dtype=dtype, device=device)
    else:
        tensor = torch.empty(shape, dtype=dtype, device=device)
    target = torch_memory.storage_bytes(tensor)
    host = target if target.device.type == "cpu" else torch.empty_like(target, device="cpu")
    memory.fill(host.numpy())
    if host is not target:
        target.copy_(host)
    return tensor


def _wrapped(tensor: torch.Tensor, wrap: str) -> torch.Tensor:
    match wrap:
        case "":
            return tensor
        case "requiring grad":
            return tensor.detach().requires_grad_()
        case "computed from a leaf":
            return tensor.detach().requires_grad_()[...]
        case "lazily conjugated":
            return tensor.conj()
        case "lazily negated":
            return torch._neg_view(tensor)  # pyright: ignore[reportPrivateImportUsage]
    raise ValueError(f"unknown wrap {wrap!r}")


@lru_cache
def _element_types(device_type: str) -> tuple[ElementType, ...]:
    """Every dtype that can be allocated and copied on a device, ordinary ones first."""
    others = {torch_memory.dtype_name(value) for value in vars(torch).values() if isinstance(value, torch.dtype)}
    names = [*_ORDINARY, *sorted(others.difference(_ORDINARY))]
    dtypes = [getattr(torch, name) for name in names]
    return tuple(_element_type(dtype, device_type) for dtype in dtypes if _can_copy(dtype, device_type))


def _ordinary(device: str) -> list[ElementType]:
    return [each for each in _element_types(torch.device(device).type) if each.name in _ORDINARY]


def _can_copy(dtype: torch.dtype, device: str, *, transposed: bool = False) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Large enough for the kernel that torch has for transposed matrices.
            matrix = torch.empty((64, 64), dtype=dtype, device=device)
            (matrix.t() if transposed else matrix).clone(memory_format=torch.contiguous_format)
        except Exception:
            # Placeholders for future dtypes, quantized ones, and what this device lacks, each with errors of its own.
            return False
    return True


def _element_type(dtype: torch.dtype, device: str) -> ElementType:
    wraps = [Wrap(origin="numpy memory"), Wrap(origin="inference mode")]
    if dtype.is_floating_point or dtype.is_complex:
        wraps += [Wrap("requiring grad"), Wrap("computed from a leaf")]
    if dtype.is_complex:
        flip = torch_memory.sign_bits(dtype, real=False)
        wraps.append(Wrap("lazily conjugated", flip=flip, mask=_finite(dtype), refusable=True))
    if dtype in _LAZILY_NEGATED:
        flip = torch_memory.sign_bits(dtype)
        wraps.append(Wrap("lazily negated", flip=flip, mask=_finite(dtype), refusable=True))
    mask = b"\x01" if dtype == torch.bool else b""
    any_layout = _can_copy(dtype, device, transposed=True)
    return ElementType(torch_memory.dtype_name(dtype), dtype.itemsize, mask, tuple(wraps), any_layout)


def _finite(dtype: torch.dtype) -> bytes:
    """All bits but the highest of every exponent: negating a NaN may change more than its sign."""
    return bytes(0xBF if sign else 0xFF for sign in torch_memory.sign_bits(dtype))


class TorchKind:
    """All that the suite knows about torch; see `rdt_conformance.payloads.base.PayloadKind` for every method."""

    data_type = torch.Tensor
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
    ) -> SearchStrategy[TorchPayload]:
        """Payloads of many tensors; they shrink towards one small plain float32 tensor."""
        known = _element_types(torch.device(device).type)
        fitting = [each for each in known if each.itemsize <= max_bytes and (not plain or each.name in _ORDINARY)]
        limits = Limits(tuple(fitting), max_bytes, plain, refusable, backwards=False, avoid=avoid)
        return payloads(TorchPayload, limits, min_tensors, max_tensors)

    def every_contiguous(self, device: str = "cpu") -> list[TorchPayload]:
        """Payloads of one contiguous tensor: every dtype, every number of dimensions."""
        return every_contiguous(TorchPayload, _element_types(torch.device(device).type))

    def every_view(self, device: str = "cpu") -> list[TorchPayload]:
        """Payloads of tensors that are more than contiguous."""
        return every_view(TorchPayload, _element_types(torch.device(device).type), backwards=False)

    def families(
        self, *, device: str = "cpu", max_bytes: int = DEFAULT_MAX_BYTES, avoid: frozenset[str] = frozenset()
    ) -> SearchStrategy[ArrayFamily]:
        """Families of plain dtypes: the same tensor, base and view, overlapping and neighbouring views."""
        return families(TorchPayload, _ordinary(device), max_bytes, avoid)

    def plain_traits(self, device: str = "cpu") -> list[tuple[str, TorchPayload]]:
        """Every trait that plain payloads may have, with a payload that has no other."""
        return plain_traits(TorchPayload, _ordinary(device), ElementType("uint8", 1))

    def simple(self, nbytes: int, count: int = 1, seed: int = 0) -> TorchPayload:
        """Contiguous tensors of bytes."""
        return TorchPayload(simple_recipes(ElementType("uint8", 1), nbytes, count, seed))

    def small_view(self, nbytes: int, whole: int) -> TorchPayload:
        """A tensor of bytes from the middle of a larger memory."""
        return TorchPayload(small_view_recipes(ElementType("uint8", 1), nbytes, whole))

    def refusable_payloads(self, device: str = "cpu") -> list[OddTorchPayload]:
        """What a transport may refuse but must never carry wrongly."""
        return OddTorchPayload.available(device)

    def on_another_device(self, device: str = "cpu") -> list[torch.Tensor]:
        """One empty tensor on another type of device: the CPU or, if that is the one, torch's stand-in for devices."""
        return [torch.empty(0, device="meta" if torch.device(device).type == "cpu" else "cpu")]

    def buffers(self, payload: ArrayPayload, device: str = "cpu") -> list[torch.Tensor]:
        """Contiguous target buffers, each holding the inverse of what is to arrive in it."""
        buffers = [
            torch.empty(recipe.layout.shape, dtype=getattr(torch, recipe.memory.dtype), device=device)
            for recipe in payload.recipes
        ]
        self.overwrite(buffers, payload.inverse())
        return buffers

    def guarded_buffers(self, payload: ArrayPayload, device: str = "cpu") -> tuple[list[torch.Tensor], Guard]:
        """Target buffers that are views of one larger memory, and a guard over the rest of that memory."""
        places, size = arena([recipe.nbytes for recipe in payload.recipes])
        memory = _allocate(Memory("uint8", 1, size, seed=size), (size,), device)
        buffers = [
            memory[begin:end].view(getattr(torch, recipe.memory.dtype)).view(recipe.layout.shape)
            for recipe, (begin, end) in zip(payload.recipes, places, strict=True)
        ]
        self.overwrite(buffers, payload.inverse())
        return buffers, Guard(lambda: torch_memory.on_host(memory).numpy(), places)

    def room(self, payload: ArrayPayload, device: str = "cpu") -> torch.Tensor:
        """Memory for a plain payload or a smaller one. None on a GPU, where torch's allocator itself hands out again
        what has just been freed; and memory that is not of that allocator could not be shared with other processes."""
        if torch.device(device).type != "cpu":
            return torch.empty(0, device=device)
        _, size = arena([recipe.nbytes for recipe in payload.recipes])
        return torch.empty(size, dtype=torch.uint8, device=device)

    def build_in(self, room: torch.Tensor, payload: ArrayPayload) -> list[torch.Tensor]:
        """The tensors of a plain payload in a room, each with a storage of its own."""
        if room.device.type != "cpu":
            return payload.build(str(room.device))
        places, _ = arena([recipe.nbytes for recipe in payload.recipes])
        tensors = [
            torch_memory.part(room, begin, end).view(getattr(torch, recipe.memory.dtype)).view(recipe.layout.shape)
            for recipe, (begin, end) in zip(payload.recipes, places, strict=True)
        ]
        self.overwrite(tensors, payload)
        return tensors

    def fingerprint(self, tensors: Sequence[torch.Tensor]) -> Fingerprint:
        """What can be seen of tensors, and all bytes of their storages."""
        return Fingerprint.take(tensors, torch_memory.facts)

    def overwrite(self, tensors: Sequence[torch.Tensor], payload: ArrayPayload) -> None:
        """Write a payload's bytes into tensors in place."""
        for tensor, recipe in zip(tensors, payload.recipes, strict=True):
            torch_memory.write(tensor, recipe.values())

    def metas(self, tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
        """The shape and dtype of each tensor."""
        return [(tensor.shape, tensor.dtype) for tensor in tensors]

    def tracked(self, payload: ArrayPayload, device: str = "cpu") -> tuple[list[torch.Tensor], Lifetimes]:
        """The tensors of a payload, and whether anybody still refers to their storages."""
        tensors = TorchPayload.build_all([payload], device)[0]
        storages = {StorageWeakRef(tensor.untyped_storage()) for tensor in tensors}
        return tensors, Lifetimes([storage.expired for storage in storages])

    def share_memory(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        """Whether two tensors have a byte in common, by address."""
        return a.device == b.device and torch_memory.span(a).overlaps(torch_memory.span(b))

    def traits(self, tensors: Sequence[torch.Tensor], device: str = "cpu") -> list[str]:
        """How tensors deviate from contiguous, writable ones of the plain type on a device."""
        read_only = torch_memory.ReadOnlyMemory()
        return [
            f"tensor {index}: {words}"
            for index, tensor in enumerate(tensors)
            for words in torch_memory.deviations(tensor, device, read_only)
        ]


KIND = TorchKind()
