"""What the benchmarks send: bytes that depend on seed and turn, and the comparison of every one of them."""

from __future__ import annotations

import bisect
import ctypes
import dataclasses
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rdt_conformance.bench.device_contents import DevicePool, device_of
from rdt_conformance.facts import JAX_ARRAYS, type_name

Bytes = NDArray[np.uint8]

_STEP, _SLIDE = 8 * 1021, 8 * 8192
"""Each turn sends another stretch of the same random bytes, further on by a step, within as many bytes: none comes
again for 8192 turns, as the two have nothing but 8 in common."""
FAR = 4096
"""So many turns away the content is another one, and none that comes soon."""
_PAGE = 4096
_MOST_READ = 64
"""Tensors of an object that are read from when it has come: thousands would take longer than moving them."""

_TORCH, _NUMPY, _ARROW = "torch.Tensor", "numpy.ndarray", "pyarrow.lib.Table"
MEASURED = (_TORCH, _NUMPY, _ARROW, *JAX_ARRAYS)
"""The types of data that benchmarks can send."""
MEASURED_IN_WORDS = "tensors of torch, arrays of numpy and JAX, and tables of Arrow"
_LOADS = {_ARROW: "arrow_loads"} | dict.fromkeys(JAX_ARRAYS, "jax_loads")
"""The module for each type whose package need not be there."""
_CLASSES = frozenset(name.rpartition(".")[2] for name in _LOADS)

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_libc.memmove.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True)
class Load:
    """What is carried: tensors of one shape and dtype, or of many.

    Args:
        shapes: of each tensor.
        dtypes: of each tensor, as torch calls them without the prefix.
        seed: of the contents.
        data_type: one of `MEASURED`; a table has one column, and its shape is the number of rows.
        device: where the tensors are.
        buffers: received into target buffers, which stay the same, instead of new memory.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    seed: int = 0
    data_type: str = "torch.Tensor"
    device: str = "cpu"
    buffers: bool = False

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return len(self.shapes)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each tensor."""
        return [
            math.prod(shape) * getattr(torch, dtype).itemsize
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]

    def adapted(self, data_type: str, device: str, seed: int) -> Load:
        """The same for a run; only torch and JAX have bfloat16, and others carry what is as large."""
        known = data_type in (_TORCH, *JAX_ARRAYS)
        dtypes = tuple(dtype if known else dtype.replace("bfloat16", "float16") for dtype in self.dtypes)
        shapes = tuple((math.prod(shape),) for shape in self.shapes) if data_type == _ARROW else self.shapes
        return dataclasses.replace(self, shapes=shapes, dtypes=dtypes, seed=seed, data_type=data_type, device=device)

    def empty(self) -> list[Any]:
        """Tensors with anything in them, each in memory of its own."""
        pairs = zip(self.shapes, self.dtypes, strict=True)
        if loads := _loads(self.data_type):
            return [loads.empty(shape, dtype) for shape, dtype in pairs]
        if self.data_type == _NUMPY:
            return [np.empty(shape, dtype) for shape, dtype in pairs]
        return [torch.empty(shape, dtype=getattr(torch, dtype), device=self.device) for shape, dtype in pairs]


def flat(nbytes: int, count: int = 1, **how: Any) -> Load:
    """A load of `count` tensors of bytes, of `nbytes` together; the first ones take what does not divide evenly."""
    each, more = divmod(nbytes, count)
    sizes = [each + (number < more) for number in range(count)]
    return Load(tuple((size,) for size in sizes), ("uint8",) * count, **how)


@lru_cache(maxsize=2)
def _pool(nbytes: int, seed: int) -> Bytes:
    return np.frombuffer(np.random.default_rng(seed).bytes(nbytes + _SLIDE), np.uint8)


@lru_cache(maxsize=2)
def _pool_on(device: torch.device, nbytes: int, seed: int) -> DevicePool:
    return DevicePool(_pool(nbytes, seed), device)


@lru_cache(maxsize=4)
def tensors_of(load: Load) -> list[Any]:
    """Tensors of a load that all contenders share, as where memory lies can make a difference of a fifth."""
    tensors = load.empty()
    Contents(load).fill(tensors, 0)
    return tensors


def forget() -> None:
    """Give back the memory of what is no longer carried."""
    _pool.cache_clear()
    _pool_on.cache_clear()
    tensors_of.cache_clear()


class Contents:
    """The content that a load has in each turn; the same in every process."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loads = _loads(load.data_type)  # imported here: that is no part of a first read
        self._ends = np.cumsum([0, *load.sizes]).tolist()
        self._pool = _pool(load.nbytes, load.seed)

    def of(self, turn: int) -> Bytes:
        """All bytes, one tensor after the other."""
        start = _start(turn)
        return self._pool[start : start + self._load.nbytes]

    def fill(self, tensors: Sequence[Any], turn: int) -> None:
        """Write them into tensors of the load, in place; it is over when they are there, also on a GPU."""
        if device := device_of(tensors):
            if (found := [tensor.nbytes for tensor in tensors]) != self._load.sizes:
                raise ValueError(f"tensors of {found} bytes, where {self._load.sizes} are to be sent")
            self._on(device).fill(tensors, _start(turn))
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # else it would be a part of what is measured
            return
        content = self.of(turn)
        for tensor, start, end in zip(tensors, self._ends, self._ends[1:], strict=False):
            if isinstance(tensor, torch.Tensor) and not tensor.is_cpu:
                raise ValueError("the tensors of a load are on one device")
            memory, sent = as_bytes(tensor), content[start:end]
            if memory.size != sent.size:
                raise ValueError(f"{memory.size} bytes of a {type(tensor).__name__}, where {sent.size} are to be sent")
            # Not by numpy, which is given the memory of a JAX array only to read.
            _libc.memmove(address_of(memory), address_of(sent), sent.size)

    def wrong(self, received: Any, turn: int) -> str:
        """How what was received differs in count, type, shape, dtype or any byte; empty if it does not."""
        load = self._load
        if not isinstance(received, list | tuple) or len(received) != load.count:
            what = f"{len(received)} tensors" if isinstance(received, list | tuple) else type(received).__name__
            return f"{what} came where {load.count} were sent"
        for number, tensor in enumerate(received):
            if _loads_of(tensor) is not self._loads:
                return f"tensor {number} is a {type(tensor).__name__}"
            form = _form_of(tensor)
            if form != (load.shapes[number], load.dtypes[number]):
                return f"tensor {number} is {form[1]}{list(form[0])}"
        device = device_of(received)
        content = self.of(turn)
        found = self._on(device).first_wrong(received, _start(turn)) if device else self._first_wrong(received, content)
        if found is None:
            return ""
        at, byte = found
        number = bisect.bisect_right(self._ends, at) - 1
        return f"byte {at - self._ends[number]} of tensor {number} is 0x{byte:02X}, sent 0x{content[at]:02X}"

    def _on(self, device: torch.device) -> DevicePool:
        return _pool_on(device, self._load.nbytes, self._load.seed)

    def _first_wrong(self, received: Sequence[Any], content: Bytes) -> tuple[int, int] | None:
        """See `DevicePool.first_wrong`; wherever the tensors are."""
        for tensor, start, end in zip(received, self._ends, self._ends[1:], strict=False):
            came, sent = as_bytes(tensor), content[start:end]
            if _libc.memcmp(address_of(came), address_of(sent), len(sent)):
                at = int(np.flatnonzero(came != sent)[0])
                return start + at, int(came[at])
        return None


def _start(turn: int) -> int:
    return turn * _STEP % _SLIDE


def _form_of(tensor: Any) -> tuple[tuple[int, ...], str]:
    """Shape and dtype, as in a `Load`."""
    if loads := _loads_of(tensor):
        return loads.form_of(tensor)
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _loads_of(tensor: Any) -> ModuleType | None:
    """The module that knows such a value, if it is none of torch's or numpy's."""
    # The first look is for the sake of what is measured: it is a part of the first read.
    return _loads(type_name(type(tensor))) if type(tensor).__name__ in _CLASSES else None


@cache
def _loads(data_type: str) -> ModuleType | None:
    name = _LOADS.get(data_type)
    return importlib.import_module(f"rdt_conformance.bench.{name}") if name else None


def as_bytes(tensor: Any) -> Bytes:
    """The bytes of a tensor; those in this process's memory themselves if it is contiguous there, else a copy."""
    if loads := _loads_of(tensor):
        return loads.bytes_of(tensor)
    if isinstance(tensor, torch.Tensor):
        if not tensor.is_cpu or tensor.requires_grad:
            tensor = tensor.detach().cpu()
        if tensor.dtype is not torch.uint8:
            tensor = tensor.reshape(-1).view(torch.uint8)
        tensor = tensor.numpy()
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)


def read_first(tensors: Sequence[Any]) -> None:
    """Read a byte of every page of tensors, as their first user would; of many of them, of some."""
    for tensor in tensors[:: max(1, len(tensors) // _MOST_READ)]:
        if isinstance(tensor, torch.Tensor) and not tensor.is_cpu:
            torch.cuda.synchronize(tensor.device)
        else:
            as_bytes(tensor)[::_PAGE].tobytes()


def address_of(memory: Any) -> int:
    """Where an array or a tensor lies."""
    return memory.data_ptr() if isinstance(memory, torch.Tensor) else memory.__array_interface__["data"][0]
