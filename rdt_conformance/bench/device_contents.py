"""The benchmarks' contents in the memory of a GPU, and the comparison there.

To bring what has come to the host and to compare it there takes far longer than to send it: 1 GiB, a hundred times.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_AT_ONCE = 64 << 20
"""Bytes that are compared at once: the device writes down for each of them whether it is the same."""


class DevicePool:
    """Random bytes in a device's memory, of which each turn sends a stretch.

    Args:
        content: the same bytes on the host.
        device: where they are to be.
    """

    def __init__(self, content: NDArray[np.uint8], device: torch.device) -> None:
        with warnings.catch_warnings():  # torch warns of memory that must not be written, which it is not
            warnings.simplefilter("ignore", UserWarning)
            self._bytes = torch.from_numpy(content).to(device)

    def fill(self, tensors: Sequence[torch.Tensor], start: int) -> None:
        """Write the bytes from `start` on into contiguous tensors of the device, one after the other."""
        into = [tensor.view(-1).view(torch.uint8) for tensor in tensors]
        sizes = [each.numel() for each in into]
        torch.split_with_sizes_copy(self._bytes[start : start + sum(sizes)], sizes, out=into)

    def first_wrong(self, tensors: Sequence[torch.Tensor], start: int) -> tuple[int, int] | None:
        """Where tensors of the device differ first from the bytes from `start` on, and the byte there.

        Counted over all tensors. Small tensors are joined and compared together, as thousands of small comparisons
        would take longer than all else.
        """
        done = 0
        for came in _pieces(tensors):
            sent = self._bytes[start + done : start + done + came.numel()]
            if not torch.equal(came, sent):
                at = int((came != sent).nonzero()[0])
                return done + at, int(came[at])
            done += came.numel()
        return None


def _pieces(tensors: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The bytes of all tensors, in their order: large tensors in pieces, small ones together."""
    small: list[torch.Tensor] = []
    room = _AT_ONCE
    for tensor in tensors:
        for piece in tensor.detach().reshape(-1).view(torch.uint8).split(_AT_ONCE):
            if piece.numel() > room:
                yield torch.cat(small)
                small, room = [], _AT_ONCE
            small.append(piece)
            room -= piece.numel()
    if small:
        yield torch.cat(small)


def device_of(values: Any) -> torch.device | None:
    """The device that has all of these tensors; None if it is the host, or there are several, or none."""
    devices = {value.device if isinstance(value, torch.Tensor) else None for value in values}
    device = devices.pop() if len(devices) == 1 else None
    return None if device is None or device.type == "cpu" else device
