"""A two-sided transport through NCCL, between GPUs, with communicators of its own, which can be aborted.

Source and destination form a communicator of two, apart from the collective groups of Ray: to have any of those, or
none, makes no difference. What goes on in it, and how an abort ends that, is in `_nccl_pair`; when a communicator is
made, and what follows from an abort, in `_pairs`; how the two find each other, in `_wire`.

**Streams.** The tensors are complete when what was queued on the source's stream at `extract` is done: `send` runs on a
thread of Ray's, with another current stream. Both sides return when the transfer is complete on the GPU, too. So what
was received may be used on any stream, and what was sent may be changed.

**Communicators** take memory of the GPU, some 250 MB each at the source and 500 at the destination. So only some are
kept.

What NCCL itself sends is neither proved nor encrypted: that is for the network to do. Linux; ``torch.Tensor`` on GPUs,
two different ones: NCCL does not work within one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from reference_transports._layout import describe, landing, on_one_gpu
from reference_transports._nccl_pair import PairGroup
from reference_transports._pairs import Half, PairTransport, TransferMetadata, digest_of, transfer_of
from reference_transports._wire import Channel, SourceMetadata, source_of


@dataclass
class NcclMetadata(SourceMetadata):
    """Also says what object it is, and on which of the GPUs that the source sees.

    Args:
        obj_id: the object.
        gpu: number of the GPU.
    """

    obj_id: str = ""
    gpu: int = 0


class NcclTransport(PairTransport):
    """Sends and receives through NCCL."""

    MOST_GROUPS: ClassVar[int] = 16

    def __init__(self) -> None:
        super().__init__()
        self._ready: dict[str, torch.cuda.Event | None] = {}
        """By object: when its tensors are complete, if they are not. Every access is a single step, without a lock."""

    def tensor_transport_backend(self) -> str:
        """The name to register; NCCL is that of Ray's own."""
        return "NCCL_REFERENCE"

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """Describe the tensors, say where this process listens, and remember how far the current stream is.

        Raises:
            ValueError: the tensors are not torch tensors in plain memory of one GPU. Nothing was set up.
        """
        device = on_one_gpu(rdt_object)
        plain = self._listener.metadata(rdt_object, "cuda")
        if device is not None and obj_id not in self._ready:
            self._ready[obj_id] = _so_far(device)
        return NcclMetadata(**vars(plain), obj_id=obj_id, gpu=device.index if device else 0)

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Send the tensors, once the receiver of this transfer is there, and return when that is done.

        Raises:
            ValueError: the metadata are not ours, or do not describe these tensors; or both are on one GPU.
            ConnectionAbortedError: the transfer was aborted. Ray does that too when the receiver is gone.
            ConnectionError: NCCL cannot connect the two.
        """
        source, transfer = _source_of(tensor_transport_metadata), transfer_of(communicator_metadata)
        if source.secret != self._listener.secret or list(source.tensor_meta) != describe(tensors, ("cuda",)):
            raise ValueError(f"transfer {transfer.transfer_id}: the metadata are not those of the tensors to send")
        device = on_one_gpu(tensors)
        if device is not None and any(tensor.nbytes for tensor in tensors):
            ready = self._ready[source.obj_id] if source.obj_id in self._ready else _so_far(device)
            self._move(PairGroup.send, tensors, ready, transfer, source.gpu)

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Receive into the target buffers if there are any, else into fresh tensors on the current device.

        Raises:
            ValueError: the metadata are not ours, or the buffers do not fit, or both are on one GPU.
            ConnectionError: the source is gone, the transfer was aborted, or NCCL cannot connect the two.

        Nothing is written any more after an error.
        """
        source, transfer = _source_of(tensor_transport_metadata), transfer_of(communicator_metadata)
        on_one_gpu(target_buffers or [])
        tensors = landing(source.tensor_meta, target_buffers, "cuda", ("cuda",))
        if any(tensor.nbytes for tensor in tensors):
            self._move(PairGroup.receive, tensors, _so_far(tensors[0].device), transfer, source.gpu, source)
        return tensors

    def _move(
        self,
        move: Callable[[PairGroup, Sequence[torch.Tensor], torch.cuda.Event | None, bytes], None],
        tensors: list[torch.Tensor],
        ready: torch.cuda.Event | None,
        transfer: TransferMetadata,
        gpu: int,
        source: SourceMetadata | None = None,
    ) -> None:
        digest, device = digest_of(transfer, [tensor.nbytes for tensor in tensors]), tensors[0].device

        def join(channel: Channel, rank: int) -> PairGroup:
            return PairGroup(channel, rank, device)

        # The source has a communicator for each of its GPUs.
        pair = f"{transfer.pair} {gpu}"
        self._transfer(
            Half(transfer.transfer_id, pair, source, join, lambda group: move(group, tensors, ready, digest))
        )

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Forget when the object was complete."""
        self._ready.pop(obj_id, None)
        super().garbage_collect(obj_id, tensor_transport_meta, tensors)


def _so_far(device: torch.device) -> torch.cuda.Event | None:
    """An event that happens when all that is queued on the current stream is done; None if nothing is."""
    stream = torch.cuda.current_stream(device)
    if stream.query():
        return None
    event = torch.cuda.Event()
    event.record(stream)
    return event


def _source_of(metadata: TensorTransportMetadata) -> NcclMetadata:
    if not isinstance(metadata, NcclMetadata):
        raise ValueError(f"{type(metadata).__name__} is not the metadata of NCCL_REFERENCE")
    source_of(metadata)
    return metadata
