"""What the CPU transports here share: which tensors are plain memory, and where their bytes are.

A tensor is a ``torch.Tensor`` or a ``numpy.ndarray``; both are treated alike, told apart by their type.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

Tensor: TypeAlias = Any
"""``torch.Tensor | numpy.ndarray``"""
TensorMeta: TypeAlias = Sequence[tuple[tuple[int, ...], Any]]
"""A shape and a ``torch.dtype | numpy.dtype`` for each tensor, as in ``TensorTransportMetadata.tensor_meta``."""

_MOST_BUFFERS = 1024
"""How many buffers the kernel takes in one ``readv``, ``writev``, ``sendmsg`` or ``recvmsg`` (Linux: ``IOV_MAX``)."""


def describe(tensors: Sequence[Tensor]) -> list[Any]:
    """The shape and dtype of each tensor, in order: what goes into ``tensor_meta``.

    Call it before anything is set up: it is also where a transport refuses what it cannot carry, so that nothing is
    carried wrongly and nothing is left behind.

    Raises:
        ValueError: the tensors are of several device types, or one of them is not plain CPU memory.
    """
    devices = {tensor.device.type if isinstance(tensor, torch.Tensor) else "cpu" for tensor in tensors}
    if len(devices) > 1:
        raise ValueError(f"the tensors of one object must share a device type, got {' and '.join(sorted(devices))}")
    for index, tensor in enumerate(tensors):
        obstacle = _obstacle(tensor)
        if obstacle:
            raise ValueError(f"tensor {index} cannot be carried: {obstacle}")
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _obstacle(tensor: Tensor) -> str:
    """Why the tensor is not plain CPU memory; empty if it is."""
    kind = type(tensor)
    if kind is np.ndarray:
        return f"its dtype {tensor.dtype} holds references to Python objects" if tensor.dtype.hasobject else ""
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        # A subclass may keep its data elsewhere (masks, scales, shards), which its shape and dtype do not tell.
        return f"{kind.__module__}.{kind.__qualname__} is neither a plain tensor nor a plain array"
    if tensor.device.type != "cpu":
        return f"it is on device {tensor.device}, only cpu is supported"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return f"its layout is {'nested' if tensor.is_nested else tensor.layout}, only strided is supported"
    if tensor.is_quantized:
        return f"it is quantized ({tensor.dtype}), its scales would be lost"
    if tensor.numel() and not tensor.data_ptr():
        return "it has no memory (its storage was freed, or it is symbolic)"
    return ""


def flat_bytes(tensor: Tensor) -> memoryview:
    """The tensor's bytes in C order: its own memory if it is contiguous, else a copy. The view keeps it alive.

    Only for tensors that `describe` accepts. The view of a contiguous tensor is writable, and writing changes it.
    """
    if isinstance(tensor, torch.Tensor):
        return np.asarray(_Memory(tensor.detach().resolve_conj().resolve_neg().contiguous())).data
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data


class _Memory:
    """Lends the memory of a contiguous tensor to numpy.

    ``tensor.numpy()`` would do the same, but takes from the tensor, for good, the ability to be resized; and it knows
    only numpy's dtypes.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
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


def landing(tensor_meta: TensorMeta, target_buffers: Sequence[Tensor] | None = None) -> list[Any]:
    """The tensors to receive into: the target buffers themselves if there are any, else fresh ones.

    All of them are contiguous, so that `flat_bytes` gives their own memory.

    Raises:
        ValueError: the buffers do not fit the metadata, or cannot be written in place. Nothing was written.
    """
    if target_buffers is None:
        return [
            # np.empty would turn the dtypes S0 and V0 into others.
            torch.empty(shape, dtype=dtype) if isinstance(dtype, torch.dtype) else np.ndarray(shape, dtype)
            for shape, dtype in tensor_meta
        ]
    if len(target_buffers) != len(tensor_meta):
        raise ValueError(f"{len(target_buffers)} target buffers given for {len(tensor_meta)} tensors")
    for index, (buffer, expected, found) in enumerate(
        zip(target_buffers, tensor_meta, describe(target_buffers), strict=True)
    ):
        if type(found[1]) is not type(expected[1]) or found != tuple(expected):
            raise ValueError(f"target buffer {index} has shape and dtype {found}, the tensor has {expected}")
        if not _is_writable_in_place(buffer):
            raise ValueError(f"target buffer {index} must be contiguous and writable")
    for buffer in target_buffers:
        if isinstance(buffer, torch.Tensor):
            # The bytes are about to change behind autograd's back.
            torch.autograd.graph.increment_version(buffer)
    return list(target_buffers)


def _is_writable_in_place(buffer: Tensor) -> bool:
    if isinstance(buffer, torch.Tensor):
        return buffer.is_contiguous() and not buffer.is_conj() and not buffer.is_neg()
    return buffer.flags.c_contiguous and buffer.flags.writeable


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
