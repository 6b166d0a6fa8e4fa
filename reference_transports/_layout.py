"""What the transports here share: which tensors are plain memory, and where their bytes are.

A tensor is a ``torch.Tensor`` or a ``numpy.ndarray``; both are treated alike, told apart by their type.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import torch

Tensor: TypeAlias = Any
"""``torch.Tensor | numpy.ndarray``"""
TensorMeta: TypeAlias = Sequence[tuple[tuple[int, ...], Any]]
"""A shape and a ``torch.dtype | numpy.dtype`` for each tensor, as in ``TensorTransportMetadata.tensor_meta``."""

_MOST_BUFFERS = 1024
"""How many buffers the kernel takes in one ``readv``, ``writev``, ``sendmsg`` or ``recvmsg`` (Linux: ``IOV_MAX``)."""

_PLAIN_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
_TRAITS = attrgetter("device", "layout", "is_nested", "is_quantized")

_LARGE = 4 << 20
"""Bytes from which on numpy asks for huge pages."""
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def describe(tensors: Sequence[Tensor], device_types: Collection[str] = ("cpu",)) -> list[Any]:
    """The shape and dtype of each tensor, in order: what goes into ``tensor_meta``.

    Call it before anything is set up: it is also where a transport refuses what it cannot carry, so that nothing is
    carried wrongly and nothing is left behind.

    Raises:
        ValueError: the tensors are of several device types, or one of them is not plain memory of such a device.
    """
    _check(tensors, device_types)
    return _described(tensors)


def _described(tensors: Sequence[Tensor]) -> list[Any]:
    """Equal ones are one: a thousand of them are pickled in a thirtieth of the time, and compared by identity."""
    described: list[Any] = []
    known: dict[Any, Any] = {}
    last: Any = (None, None)
    for tensor in tensors:
        shape, dtype = tensor.shape, tensor.dtype
        if dtype is not last[1] or shape != last[0]:
            last = shape, dtype
            if isinstance(dtype, torch.dtype):  # numpy's are equal also where one has metadata and the other has none
                last = known.setdefault(last, last)
        described.append(last)
    return described


def _check(tensors: Sequence[Tensor], device_types: Collection[str]) -> None:
    if _are_plain(tensors, device_types):
        return
    for index, tensor in enumerate(tensors):
        obstacle = _obstacle(tensor, device_types)
        if obstacle:
            raise ValueError(f"tensor {index} cannot be carried: {_mixture(tensors) or obstacle}")
    mixture = _mixture(tensors) if len(device_types) > 1 else ""
    if mixture:
        raise ValueError(f"the tensors cannot be carried: {mixture}")


def _are_plain(tensors: Sequence[Tensor], device_types: Collection[str]) -> bool:
    """Whether all are plain torch tensors with memory, the usual case; if not, each has to be asked what it is."""
    if not _PLAIN_TENSORS.issuperset(map(type, tensors)):
        return False
    traits = set(map(_TRAITS, tensors))
    usual = len({device.type for device, *_ in traits}) < 2 and all(
        device.type in device_types and layout is torch.strided and not nested and not quantized
        for device, layout, nested, quantized in traits
    )
    return usual and all(map(torch.Tensor.data_ptr, tensors))  # last, for others have no such thing


def _mixture(tensors: Sequence[Tensor]) -> str:
    """What is wrong with the tensors together; empty if nothing is."""
    found = {tensor.device.type if isinstance(tensor, torch.Tensor) else "cpu" for tensor in tensors}
    several = " and ".join(sorted(found))
    return f"the tensors of one object must share a device type, got {several}" if len(found) > 1 else ""


def _obstacle(tensor: Tensor, device_types: Collection[str]) -> str:
    """Why the tensor is not plain memory of such a device; empty if it is."""
    kind = type(tensor)
    if kind is np.ndarray:
        return f"its dtype {tensor.dtype} holds references to Python objects" if tensor.dtype.hasobject else ""
    if kind not in _PLAIN_TENSORS:
        # A subclass may keep its data elsewhere (masks, scales, shards), which its shape and dtype do not tell.
        return f"{kind.__module__}.{kind.__qualname__} is neither a plain tensor nor a plain array"
    if ("cpu" if tensor.is_cpu else tensor.device.type) not in device_types:  # is_cpu is much faster
        return f"it is on device {tensor.device}, only {' and '.join(device_types)} is supported"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return f"its layout is {'nested' if tensor.is_nested else tensor.layout}, only strided is supported"
    if tensor.is_quantized:
        return f"it is quantized ({tensor.dtype}), its scales would be lost"
    if not tensor.data_ptr() and tensor.numel():
        return "it has no memory (its storage was freed, or it is symbolic)"
    return ""


def on_one_gpu(tensors: Sequence[Tensor]) -> torch.device | None:
    """The GPU that the tensors are on, for a transport that needs it to be one; None if there are none.

    Raises:
        ValueError: they are not torch tensors, or on several GPUs, or elsewhere.
    """
    found = {tensor.device if isinstance(tensor, torch.Tensor) else type(tensor) for tensor in tensors}
    if len(found) > 1 or not all(isinstance(each, torch.device) and each.type == "cuda" for each in found):
        names = sorted(each.__name__ if isinstance(each, type) else str(each) for each in found)
        raise ValueError(f"the tensors of one object must be torch tensors on one GPU, got {' and '.join(names)}")
    return tensors[0].device if found else None


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a torch tensor that lies in one piece, on whatever device."""
    plain = tensor.detach() if tensor.requires_grad else tensor
    try:
        flat = plain if plain.dim() == 1 else plain.view(-1)
        return flat.view(torch.uint8)  # in any case another tensor: this one may be given other memory
    except RuntimeError:  # some shapes cannot be seen so, such as one element with the stride of another dimension
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        start = int(tensor.storage_offset()) * tensor.itemsize
        return whole.set_(tensor.untyped_storage(), start, (tensor.nbytes,), (1,))


def flat_bytes(tensor: Tensor) -> memoryview:
    """The tensor's bytes in C order: its own memory if it is contiguous, else a copy. The view keeps them alive.

    Only for tensors that `describe` accepts. The view of a contiguous tensor is writable, and writing changes it.
    """
    packed = in_one_piece(tensor)
    if isinstance(packed, torch.Tensor):
        return np.asarray(_Memory(packed)).data
    return packed.reshape(-1).view(np.uint8).data


def in_one_piece(tensor: Tensor) -> Tensor:
    """The tensor itself if its bytes lie one after the other in C order, else a copy of which that is true."""
    if lies_in_one_piece(tensor):
        return tensor
    if isinstance(tensor, torch.Tensor):
        return tensor.detach().resolve_conj().resolve_neg().contiguous()
    return np.ascontiguousarray(tensor)


def memory_of(tensor: Tensor) -> Any:
    """What keeps the tensor's bytes where they are, even if it is itself given others, as by ``tensor.data = other``.

    Only resizing its storage still moves or frees them.
    """
    return tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else tensor


def lies_in_one_piece(tensor: Tensor) -> bool:
    """Whether the tensor's bytes lie one after the other in C order, from `address_of` it on."""
    if isinstance(tensor, torch.Tensor):
        return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return tensor.flags.c_contiguous


def address_of(tensor: Tensor) -> int:
    """Where the tensor's first element lies in memory."""
    return tensor.data_ptr() if isinstance(tensor, torch.Tensor) else tensor.ctypes.data


class _Memory:
    """Lends the memory of a contiguous tensor to numpy.

    ``tensor.numpy()`` would do the same, but takes from the tensor, for good, the ability to be resized; and it knows
    only numpy's dtypes.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.memory = memory_of(tensor)
        self.__array_interface__ = {
            "version": 3,
            "shape": (tensor.nbytes,),
            "typestr": "|u1",
            "data": (tensor.data_ptr(), False),
        }


def sizes(tensor_meta: TensorMeta) -> list[int]:
    """The number of bytes of each tensor.

    Raises:
        ValueError: this is not a list of shapes and dtypes.
    """
    try:
        return [math.prod(shape) * dtype.itemsize for shape, dtype in tensor_meta]
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"garbled metadata: not a list of shapes and dtypes ({error})") from None


def landing(
    tensor_meta: TensorMeta,
    target_buffers: Sequence[Tensor] | None = None,
    device: str = "cpu",
    device_types: Collection[str] = ("cpu",),
) -> list[Any]:
    """The tensors to receive into: the target buffers themselves if there are any, else fresh ones.

    All of them are contiguous, so that `flat_bytes` gives their own memory.

    Args:
        tensor_meta: what they have to hold.
        target_buffers: of the caller's.
        device: where fresh torch tensors are made.
        device_types: where target buffers may be.

    Raises:
        ValueError: the buffers do not fit the metadata, or cannot be written in place. Nothing was written.
    """
    if target_buffers is None:
        return [
            # np.empty would turn the dtypes S0 and V0 into others.
            _empty(shape, kind, device) if isinstance(kind, torch.dtype) else np.ndarray(shape, kind)
            for shape, kind in tensor_meta
        ]
    if len(target_buffers) != len(tensor_meta):
        raise ValueError(f"{len(target_buffers)} target buffers given for {len(tensor_meta)} tensors")
    _check(target_buffers, device_types)
    for index, (buffer, (shape, dtype)) in enumerate(zip(target_buffers, tensor_meta, strict=True)):
        # No list of all descriptions: ten thousand new objects would set off Python's garbage collector.
        if type(buffer.dtype) is not type(dtype) or buffer.dtype != dtype or buffer.shape != shape:
            raise ValueError(
                f"target buffer {index} has shape and dtype {buffer.shape, buffer.dtype}, the tensor has {shape, dtype}"
            )
        if not _is_writable_in_place(buffer):
            raise ValueError(f"target buffer {index} must be contiguous and writable")
    # The bytes are about to change behind autograd's back.
    torch.autograd.graph.increment_version([each for each in target_buffers if isinstance(each, torch.Tensor)])
    return list(target_buffers)


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A fresh tensor; a large one in huge pages, if the system has them: to fill it takes a third of the time.

    That is what numpy does with its arrays, and torch only where ``THP_MEM_ALLOC_ENABLE=1``.
    """
    tensor = torch.empty(shape, dtype=dtype, device=device)
    if tensor.is_cpu and tensor.nbytes >= _LARGE and sys.platform == "linux":
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        advise(start, tensor.data_ptr() + tensor.nbytes - start, mmap.MADV_HUGEPAGE)
    return tensor


def advise(address: int, size: int, advice: int) -> None:
    """Tell the kernel something about memory, from the start of a page on; it need not understand."""
    _madvise(address, size, advice)


def _is_writable_in_place(buffer: Tensor) -> bool:
    return lies_in_one_piece(buffer) and (isinstance(buffer, torch.Tensor) or buffer.flags.writeable)


def move_all(move: Callable[[list[memoryview]], int], buffers: Iterable[memoryview]) -> None:
    """Move every byte of the buffers, in order, in as few calls as the kernel allows.

    Args:
        move: moves bytes from or to the front of a list of buffers and says how many, as `os.readv`, `os.writev` and
            ``socket.sendmsg`` do; any number from 1 up, 0 if there will never be more.
        buffers: consumed as they are needed, so that copies of strided tensors need not all exist at once.

    Raises:
        EOFError: `move` gave 0 although bytes were left.
    """
    coming = (buffer for buffer in buffers if buffer.nbytes)
    batch = list(itertools.islice(coming, _MOST_BUFFERS))
    while batch:
        moved = move(batch)
        if not moved:
            raise EOFError("the data ended before its last byte")
        done = 0
        while done < len(batch) and moved >= batch[done].nbytes:
            moved -= batch[done].nbytes
            done += 1
        del batch[:done]
        if moved:
            batch[0] = batch[0][moved:]
        batch.extend(itertools.islice(coming, _MOST_BUFFERS - len(batch)))
