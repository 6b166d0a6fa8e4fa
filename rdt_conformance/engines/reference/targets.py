"""Where a get lands: buffers that the user gave, or a device that the user named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.entry import Entry


def for_fetch(entry: Entry, metadata: Any, data_type: type) -> list[Any] | None:
    """The target buffers for one fetch, or None to let the transport allocate.

    Buffers are held weakly: if the user has dropped one of them, all are ignored.

    Raises:
        ValueError: number, shape, dtype or layout of the buffers do not fit the object.
    """
    if entry.target_buffers is not None:
        buffers = [reference() for reference in entry.target_buffers]
        if any(buffer is None for buffer in buffers):
            return None
        check_fit(buffers, metadata.tensor_meta)
        return buffers
    if entry.target_device is not None:
        return [_allocate(shape, dtype, entry.target_device, data_type) for shape, dtype in metadata.tensor_meta]
    return None


def check_fit(buffers: Sequence[Any], tensor_meta: Sequence[tuple[Any, Any]]) -> None:
    """Raises:
    ValueError: a buffer does not have the shape, dtype and contiguous layout of the tensor it is meant for.
    """
    if len(buffers) != len(tensor_meta):
        raise ValueError(f"{len(buffers)} target buffers for an object of {len(tensor_meta)} tensors")
    for index, (buffer, (shape, dtype)) in enumerate(zip(buffers, tensor_meta, strict=True)):
        if tuple(buffer.shape) != tuple(shape) or buffer.dtype != dtype:
            raise ValueError(
                f"target buffer {index} is {buffer.dtype}{tuple(buffer.shape)}, the tensor is {dtype}{tuple(shape)}"
            )
        if not _contiguous(buffer):
            raise ValueError(f"target buffer {index} is not contiguous")


def _contiguous(buffer: Any) -> bool:
    return buffer.is_contiguous() if hasattr(buffer, "is_contiguous") else bool(buffer.flags.c_contiguous)


def _allocate(shape: Any, dtype: Any, device: str, data_type: type) -> Any:
    import numpy as np
    import torch

    if data_type is torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)
    if data_type is np.ndarray:
        return np.empty(shape, dtype=dtype)
    raise ValueError(f"no target device for {data_type.__name__}")
