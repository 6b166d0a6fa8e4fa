"""A two-sided transport through torch.distributed's gloo backend, with process groups and tags of its own.

Source and destination form a process group of two, apart from the default group and from the collective groups of Ray:
to have any of those, or none, makes no difference.

Gloo cannot abort, but the connection within a group can be closed, which ends at once what goes on there, on both
sides. That is what an abort does. How, and how a group is built, is in `_gloo_pair`; when, and what follows from an
abort, in `_pairs`; how the two find each other, in `_wire`.

What gloo itself sends is neither proved nor encrypted: that is for the network to do. Linux; ``torch.Tensor`` and
``numpy.ndarray`` on the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from reference_transports._gloo_pair import Device, PairGroup
from reference_transports._layout import describe, flat_bytes, landing
from reference_transports._listener import own_address
from reference_transports._pairs import Half, PairTransport, TransferMetadata, digest_of, transfer_of
from reference_transports._wire import Channel, source_of

_SMALL = 1 << 16
"""Tensors of fewer bytes travel together, in one message."""


class GlooTransport(PairTransport):
    """Sends and receives through gloo."""

    def __init__(self) -> None:
        super().__init__()
        # Owners build the transport too, and never transfer: this comes when it is needed.
        self._device: Device | None = None
        self._making = threading.Lock()

    def tensor_transport_backend(self) -> str:
        """The name to register; GLOO is that of Ray's own."""
        return "GLOO_REFERENCE"

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """Describe the tensors, and say where this process listens.

        Raises:
            ValueError: a tensor is not plain CPU memory. Nothing was set up.
        """
        return self._listener.metadata(rdt_object)

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Send the tensors, once the receiver of this transfer is there, and return when it has them.

        Raises:
            ValueError: the metadata are not ours, or do not describe these tensors.
            ConnectionAbortedError: the transfer was aborted. Ray does that too when the receiver is gone.
        """
        source, transfer = source_of(tensor_transport_metadata), transfer_of(communicator_metadata)
        if source.secret != self._listener.secret or list(source.tensor_meta) != describe(tensors):
            raise ValueError(f"transfer {transfer.transfer_id}: the metadata are not those of the tensors to send")
        views = [flat_bytes(tensor) for tensor in tensors]
        buffers, tag = _buffers(views, bytearray().join(_small(views))), _tag(transfer, views)
        move = partial(PairGroup.send, buffers=buffers, tag=tag)
        self._transfer(Half(transfer.transfer_id, transfer.pair, None, self._join, move))

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Receive into the target buffers if there are any, else into fresh tensors.

        Raises:
            ValueError: the metadata are not ours, or the buffers do not fit. Nothing was written.
            ConnectionError: the source is gone, or the transfer was aborted. Nothing will be written any more.
        """
        source, transfer = source_of(tensor_transport_metadata), transfer_of(communicator_metadata)
        tensors = landing(source.tensor_meta, target_buffers)
        views = [flat_bytes(tensor) for tensor in tensors]
        packed = bytearray(sum(view.nbytes for view in _small(views)))
        buffers, tag = _buffers(views, packed), _tag(transfer, views)
        move = partial(PairGroup.receive, buffers=buffers, tag=tag)
        self._transfer(Half(transfer.transfer_id, transfer.pair, source, self._join, move))
        rest = memoryview(packed)
        for view in _small(views):
            view[:], rest = rest[: view.nbytes], rest[view.nbytes :]
        return tensors

    def _join(self, channel: Channel, rank: int) -> PairGroup:
        with self._making:
            if self._device is None:
                self._device = dist.ProcessGroupGloo.create_device(hostname=own_address())
        return PairGroup(channel, rank, self._device)


def _tag(transfer: TransferMetadata, views: Sequence[memoryview]) -> int:
    """A tag for this transfer with these sizes, after which two more are free.

    Gloo ends the whole process if a message is too large for its buffer. So messages of other sizes must never meet.
    """
    digest = digest_of(transfer, [view.nbytes for view in views])
    return int.from_bytes(digest[:4], "big") >> 3 << 2


def _small(views: Sequence[memoryview]) -> list[memoryview]:
    return [view for view in views if view.nbytes < _SMALL]


def _buffers(views: Sequence[memoryview], packed: bytearray) -> list[torch.Tensor]:
    """What becomes a message each: every large tensor, in place, and all small ones together."""
    pieces = [view for view in views if view.nbytes >= _SMALL]
    if packed:
        pieces.append(memoryview(packed))
    # torch does not like to lend memory that is not writable.
    return [torch.frombuffer(bytearray(each) if each.readonly else each, dtype=torch.uint8) for each in pieces]
