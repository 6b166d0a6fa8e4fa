"""Transports that mistreat the receiver's own memory."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from reference_transports._layout import flat_bytes
from reference_transports.faulty import breaks
from reference_transports.inline import InlineMetadata, InlineTransport


class _WithBuffers(InlineTransport):
    """Treats target buffers in a way of its own."""

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        assert isinstance(tensor_transport_metadata, InlineMetadata)
        if target_buffers is None:
            return self.receive(tensor_transport_metadata)
        return self.receive_into(target_buffers, tensor_transport_metadata)

    def receive(self, metadata: InlineMetadata, buffers: list[Any] | None = None) -> list[Any]:
        """Receive as it should be."""
        return super().recv_multiple_tensors("", metadata, CommunicatorMetadata(), buffers)

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        """Receive into target buffers."""
        return self.receive(metadata, buffers)


@breaks("B1")
class IgnoresBuffers(_WithBuffers):
    """Was written before there were target buffers."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        return self.receive(metadata)


@breaks("B1")
class ReturnsCopiesOfTheBuffers(_WithBuffers):
    """Uses the buffers to land in, and returns tensors of its own."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        return [buffer.clone() for buffer in self.receive(metadata, buffers)]


@breaks("B1")
class RefusesBuffersTooLate(_WithBuffers):
    """Notices only afterwards that it does not support what it has just done."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        self.receive(metadata, buffers)
        raise ValueError("target buffers are not supported")


@breaks("B1")
class RefusesBuffersUnclearly(_WithBuffers):
    """Fails on target buffers, and not by saying so."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        raise AttributeError("'list' object has no attribute 'data_ptr'")


@breaks("B2")
class WritesWholeWords(_WithBuffers):
    """Copies eight bytes at a time, and clears what is beyond the last byte."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        for buffer in self.receive(metadata, buffers):
            ctypes.memset(buffer.data_ptr() + buffer.nbytes, 0, -buffer.nbytes % 8)
        return buffers


@breaks("B2")
class WritesToTheBeginningOfTheStorage(_WithBuffers):
    """Takes a buffer for its whole storage, though it is a view into the middle of that."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        for buffer, data in zip(buffers, metadata.payload, strict=True):
            storage = torch.empty(0, dtype=torch.uint8).set_(buffer.untyped_storage())
            flat_bytes(storage)[: len(data)] = data
        return buffers


@breaks("B3")
class FillsBuffersByAddress(_WithBuffers):
    """Sorts the buffers by address, to write in one sweep."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        self.receive(metadata, sorted(buffers, key=lambda buffer: buffer.data_ptr()))
        return buffers


@breaks("B3")
class FillsBuffersBackwards(_WithBuffers):
    """Takes buffers from the end of its list of them."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        left = list(buffers)
        for data in metadata.payload:
            flat_bytes(left.pop())[:] = data
        return buffers


@breaks("B4")
class RegistersBuffersForEver(_WithBuffers):
    """Registers every buffer, and cannot register the same address twice."""

    def __init__(self) -> None:
        self._registered: set[int] = set()

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        for buffer in buffers:
            if buffer.data_ptr() in self._registered:
                raise RuntimeError(f"address {buffer.data_ptr():#x} is already registered")
            self._registered.add(buffer.data_ptr())
        return self.receive(metadata, buffers)


@breaks("B4")
class FillsBuffersOnce(_WithBuffers):
    """Takes buffers that it has filled before for copies that are still good."""

    def __init__(self) -> None:
        self._filled: list[Any] = []

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        if any(buffer is filled for buffer in buffers for filled in self._filled):
            return buffers
        self._filled += buffers
        return self.receive(metadata, buffers)


@breaks("B6")
class IgnoresTheNumberOfBuffers(_WithBuffers):
    """Fills as many buffers as there are, or as there are tensors."""

    def receive_into(self, buffers: list[Any], metadata: InlineMetadata) -> list[Any]:
        for buffer, data in zip(buffers, metadata.payload, strict=False):
            flat_bytes(buffer)[:] = data
        return buffers
