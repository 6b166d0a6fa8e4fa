"""Reading and writing the memory of torch tensors as bytes, without any of torch's kernels for their dtypes.

Bytes matter, not values: two NaNs may differ and 0.0 is not -0.0, and torch cannot compare all of its dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from rdt_conformance.payloads.recipes import Look, Unreadable, flipped, raw_elements
from rdt_conformance.payloads.watching import Span


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the storage that a tensor lies in, as a tensor over the same memory."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's contents in host memory, once its GPU has done all that it was told to; itself if it is there already.

    So what is compared does not depend on streams. Whether contents were there in time is looked at before, with copies
    that wait for nothing but their own stream (D8, D9).
    """
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
    return tensor.cpu()


def part(memory: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    """Some bytes of a host memory as a tensor with a storage of its own, which keeps the memory alive."""
    return torch.from_numpy(memory.numpy()[begin:end])


def _own_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from a tensor's first element to its last, as a tensor over the same memory.

    Raises:
        Unreadable: the tensor has no such bytes.
    """
    shape, strides = tensor.shape, tensor.stride()
    reach = sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True)) + 1
    begin = tensor.storage_offset() * tensor.itemsize
    size = reach * tensor.itemsize if tensor.numel() else 0
    storage = tensor.untyped_storage()
    if size and begin + size > storage.nbytes():
        raise Unreadable(f"needs {begin + size} bytes of storage, which has {storage.nbytes()}")
    if size and (storage.device.type == "meta" or not storage.data_ptr()):
        raise Unreadable("has no memory behind it")
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, begin, (size,), (1,))


def _elements(tensor: torch.Tensor, host: torch.Tensor) -> np.ndarray:
    """A tensor's elements, given its own bytes in host memory."""
    return raw_elements(host.numpy(), tensor.itemsize, tensor.shape, tensor.stride(), 0)


def look(received: object) -> Look:
    """A torch tensor, ready to be compared.

    Raises:
        Unreadable: it is no torch tensor, or one without plain bytes.
    """
    if not isinstance(received, torch.Tensor):
        raise Unreadable(f"is a {type(received).__name__}, not a torch.Tensor")
    if received.layout is not torch.strided or received.is_nested or received.is_quantized:
        raise Unreadable(f"is {kind_of(received)}, which has no plain bytes")
    try:
        raw = _elements(received, on_host(_own_bytes(received)))
    except RuntimeError as error:
        # Subclasses without memory of their own refuse in many ways.
        raise Unreadable(f"is {kind_of(received)} and has no readable bytes ({error})") from error
    return Look(dtype_name(received.dtype), tuple(received.shape), raw, _lazy_flip(received))


def write(tensor: torch.Tensor, values: np.ndarray) -> None:
    """Write the bytes of elements, in row-major order, into a tensor.

    Its version counter does not notice, as it does not when numpy or a CUDA graph writes.
    """
    own = _own_bytes(tensor)
    host = on_host(own)
    elements = _elements(tensor, host)
    elements[...] = flipped(values, _lazy_flip(tensor)).view(elements.dtype).reshape(elements.shape)
    if host is not own:
        own.copy_(host)


def kind_of(tensor: torch.Tensor) -> str:
    """What a tensor is, in words."""
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.is_meta:
        return "a meta tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    return f"a {type(tensor).__name__}"


def dtype_name(dtype: torch.dtype) -> str:
    """The name within torch, such as ``float32``."""
    return str(dtype).removeprefix("torch.")


def sign_bits(dtype: torch.dtype, *, real: bool = True, imaginary: bool = True) -> bytes:
    """The sign bits of a floating point or complex element, as bytes of it."""
    parts = 2 if dtype.is_complex else 1
    sign = bytes(dtype.itemsize // parts - 1) + b"\x80"
    if parts == 1:
        return sign if real else bytes(dtype.itemsize)
    return b"".join(sign if wanted else bytes(len(sign)) for wanted in (real, imaginary))


def _lazy_flip(tensor: torch.Tensor) -> bytes:
    """The bits that torch turns over when it reads the tensor."""
    if not (tensor.is_conj() or tensor.is_neg()):
        return b""
    return sign_bits(tensor.dtype, real=tensor.is_neg(), imaginary=tensor.is_conj() != tensor.is_neg())


def facts(tensor: torch.Tensor) -> tuple[Mapping[str, object], int, np.ndarray]:
    """What `Fingerprint` asks about a tensor."""
    seen = {
        "type": type(tensor).__name__,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "strides": tensor.stride(),
        "storage offset": tensor.storage_offset(),
        "device": str(tensor.device),
        "data pointer": hex(tensor.data_ptr()),
        "version counter": None if tensor.is_inference() else tensor._version,
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "lazily conjugated": tensor.is_conj(),
        "lazily negated": tensor.is_neg(),
    }
    return seen, tensor.untyped_storage().data_ptr(), on_host(storage_bytes(tensor)).numpy()


def span(tensor: torch.Tensor) -> Span:
    """The addresses of a tensor's elements."""
    strides = [stride * tensor.itemsize for stride in tensor.stride()]
    return Span(tensor.data_ptr(), tensor.itemsize, tensor.shape, strides)


def deviations(tensor: torch.Tensor, device: str, read_only: ReadOnlyMemory) -> list[str]:
    """How a tensor deviates from a plain one on a device, each completing the sentence "tensor 3: …"."""
    found = []
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_quantized:
        found.append(f"is {kind_of(tensor)}")
    if tensor.device.type != torch.device(device).type:
        found.append(f"is on device {tensor.device}, not {device}")
    if tensor.layout is not torch.strided:
        return found
    if not tensor.is_contiguous():
        found.append(f"is not contiguous (shape {list(tensor.shape)}, strides {list(tensor.stride())})")
    if tensor.device.type == "cpu" and tensor.numel() and tensor.data_ptr() in read_only:
        found.append("lies in memory that cannot be written")
    checks = {
        "requires grad": tensor.requires_grad,
        "is lazily conjugated": tensor.is_conj(),
        "is lazily negated": tensor.is_neg(),
        "is an inference tensor, which cannot be written outside of inference mode": tensor.is_inference(),
    }
    return found + [words for words, holds in checks.items() if holds]


class ReadOnlyMemory:
    """The parts of this process's memory that a write would crash on, as they are now; empty where Linux is not."""

    def __init__(self) -> None:
        """Read the process's memory map."""
        maps = Path("/proc/self/maps")
        self._ranges = []
        for line in maps.read_text().splitlines() if maps.exists() else ():
            addresses, permissions = line.split(maxsplit=2)[:2]
            if "w" not in permissions:
                begin, end = addresses.split("-")
                self._ranges.append(range(int(begin, 16), int(end, 16)))

    def __contains__(self, address: int) -> bool:
        """Whether the byte at an address cannot be written."""
        return any(address in memory for memory in self._ranges)
