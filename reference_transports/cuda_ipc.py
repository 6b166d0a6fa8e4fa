"""A one-sided transport within a host: the receiver sees the very memory of the source's GPU, and nothing is copied.

**Whole allocations** are what CUDA maps, and torch puts many tensors into one. So every allocation of an object is
mapped once, and its tensors are described by where they are in it: those that share a storage at the source share one
at the receiver, and views are the same views. The tensors of the receiver can be written to, which the source sees.

**Streams.** When the source lets go of an object, its GPU may still be at work on it. So the source records an event
on its current stream, and a receiver has the tensors when that has happened. It waits for it on the processor, since
Ray receives on a thread of its own: the current stream there is not the one by which the tensors will be used.

**Who keeps the memory.** The source, until Ray frees the object there and no receiver has a tensor of it any more; how
the source learns of that, also when a receiver is killed, is in `_loans`. A receiver lets go only when its GPU has
done what was queued. Another object in the same memory, such as another view, has its own count.

**Another GPU.** If the receiver does not see the source's GPU, as is usual with Ray's ``num_gpus``, it maps the memory
into its own, over NVLink or PCIe, and copies it from there.

What cannot be exported is copied by the source to memory that can: what it has received from others by this transport,
and what torch allocates with ``expandable_segments`` or ``cudaMallocAsync``.

A receiver maps allocations, and not tensors: it can reach whatever else lies in the same ones.
"""

from __future__ import annotations

import marshal
import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._cuda import CudaError
from reference_transports._cuda_memory import Exported, Mapped, rows, tensors_in
from reference_transports._layout import TensorMeta, describe, landing, on_one_gpu, sizes
from reference_transports._loans import Borrowed, Lent

_PAUSE_SECONDS = 0.0001
"""How long to pause before asking again whether an event has happened: nothing waits for one with a time limit."""


@dataclass
class CudaIpcMetadata(TensorTransportMetadata):
    """The description of an object's tensors, and where they are.

    Args:
        host: on which it is.
        gpu: on which it is.
        loan: the source process, its descriptor of the loan, and the identity of that.
        ready: handle of an event that happens when the tensors are complete.
        allocations: their handles.
        storages: for each the allocation that it is in, by its number, and its offset and size there, in bytes.
        places: for each tensor that is not empty the storage, by its number, and the offset there in elements.
        strides: of each of those that is not contiguous, by its number.
        digest: of all this, for it goes to native code, which believes everything.
    """

    host: str = ""
    gpu: str = ""
    loan: tuple[int, int, tuple[int, int]] = (0, -1, (0, 0))
    ready: bytes = field(default=b"", repr=False)
    allocations: list[bytes] = field(default_factory=list, repr=False)
    storages: bytes = field(default=b"", repr=False)
    places: bytes = field(default=b"", repr=False)
    strides: dict[int, tuple[int, ...]] = field(default_factory=dict)
    digest: bytes = field(default=b"", repr=False)

    def sealed(self) -> CudaIpcMetadata:
        """The same, with the digest."""
        self.digest = self.expected_digest()
        return self

    def expected_digest(self) -> bytes:
        """What the digest must be."""
        parts = (self.host, self.gpu, self.loan, self.ready, self.allocations, self.storages, self.places, self.strides)
        # Version 2 writes the same bytes for the same values; faster than repr, of which there may be megabytes.
        return blake2b(marshal.dumps((sizes(self.tensor_meta), parts), 2), digest_size=16).digest()


class _Shared:
    """An object that others may use, until it is closed."""

    def __init__(self, tensors: list[Any], tensor_meta: TensorMeta) -> None:
        device = tensors[0].device
        with torch.cuda.device(device):
            exported = Exported([tensor for tensor in tensors if tensor.numel()])
            self.ready = torch.cuda.Event(interprocess=True)
            self.ready.record()
            handle = self.ready.ipc_handle()
        self.storages = exported.kept
        self.lent = Lent((self.storages, self.ready))
        self.metadata = CudaIpcMetadata(
            tensor_meta=list(tensor_meta),
            tensor_device=device.type,
            host=_host(),
            gpu=_gpus()[device.index],
            loan=(os.getpid(), self.lent.fd, self.lent.pipe),
            ready=handle,
            allocations=exported.handles,
            storages=exported.storages,
            places=exported.places,
            strides=exported.strides,
        ).sealed()
        _shared_here[self.lent.pipe] = self


_shared_here: weakref.WeakValueDictionary[tuple[int, int], _Shared] = weakref.WeakValueDictionary()
"""What this process shares, by the pipe. It cannot open handles of its own."""


@dataclass
class CudaIpcFetchRequest(FetchRequest):
    """A fetch; the tensors are there when the event has happened.

    Args:
        arrived: the event.
        used: keeps what is copied from until then.
    """

    arrived: torch.cuda.Event | None = None
    used: Any = None


class CudaIpcTransport(TensorTransportManager):
    """Shares the memory of torch tensors on a GPU with other processes of the same host."""

    def __init__(self) -> None:
        self._shared: dict[str, _Shared] = {}  # by object id. Every access is a single step, and needs no lock.

    def tensor_transport_backend(self) -> str:
        """The name to register; CUDA_IPC is that of Ray's own."""
        return "CUDA_IPC_REFERENCE"

    @staticmethod
    def is_one_sided() -> bool:
        """True: the receiver maps the source's memory without its help."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """False: no call ever waits for another process, only for GPUs, so there is nothing to abort."""
        return False

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: an actor without a GPU, or on another host, says so when it is to receive."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> CudaIpcMetadata:
        """Describe the tensors and let others map their memory, once: called again, it gives the same again.

        Raises:
            ValueError: the tensors are not torch tensors in plain memory of one GPU.
        """
        device = on_one_gpu(rdt_object)
        tensor_meta = describe(rdt_object, ("cuda",))
        if not any(tensor.nbytes for tensor in rdt_object):
            return CudaIpcMetadata(tensor_meta, device and device.type).sealed()
        shared = self._shared.get(obj_id)
        if shared is None:  # if another thread is faster, its own will do, and this one is dropped
            shared = self._shared.setdefault(obj_id, _Shared(rdt_object, tensor_meta))
        return shared.metadata

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing: all that a receiver needs is in the object's metadata. Either actor may be None, for the driver."""
        return CommunicatorMetadata()

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        """Map the tensors; and start to copy them, into the target buffers if there are any, or from another GPU.

        Raises:
            ValueError: the metadata are not ours, or of another host, or the buffers do not fit. Nothing was written.
            RuntimeError: the object is gone, freed by its source or with it; or its GPU is out of reach.
        """
        source = _source_of(tensor_transport_metadata)
        if not source.places:
            return CudaIpcFetchRequest(obj_id, landing(source.tensor_meta, target_buffers, "cuda", ("cuda",)))
        if source.host != _host():
            raise ValueError(f"object {obj_id} is on another host, and CUDA IPC works within one: use NCCL or NIXL")
        seen = source.gpu in _gpus()
        device = torch.device("cuda", _gpus().index(source.gpu) if seen else torch.cuda.current_device())
        landed = None
        if target_buffers is not None or not seen:
            landed = landing(source.tensor_meta, target_buffers, str(device), ("cuda",))
        with torch.cuda.device(device):
            storages, arrived = _open(obj_id, source, device)
            tensors = tensors_in(storages, source.tensor_meta, source.places, source.strides, device)
            if landed is not None:
                arrived.wait()
                for buffer, tensor in zip(landed, tensors, strict=True):
                    buffer.detach().copy_(tensor)  # on the current stream of this device, before that of the buffer
                arrived = torch.cuda.Event()
                arrived.record()
        return CudaIpcFetchRequest(obj_id, landed or tensors, arrived, used=tensors if landed else None)

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        """The tensors, when they are complete.

        Raises:
            TimeoutError: they are not within `timeout` seconds. Wait again.
        """
        assert isinstance(fetch_request, CudaIpcFetchRequest)
        arrived = fetch_request.arrived
        if arrived is not None and timeout < 0:
            arrived.synchronize()
        deadline = time.monotonic() + timeout
        while arrived is not None and not arrived.query():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"object {fetch_request.obj_id} is not complete after {timeout} s")
            time.sleep(_PAUSE_SECONDS)
        fetch_request.used = None
        return fetch_request.tensors

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Fetch and wait."""
        return self.wait_fetch_complete(
            self.fetch_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)
        )

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Never called: the transport is one-sided."""
        raise NotImplementedError("CUDA_IPC_REFERENCE is one-sided")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Let nobody map the object any more, and its memory go with the last who has; nothing if nobody could."""
        shared = self._shared.pop(obj_id, None)
        if shared is not None:
            shared.lent.close()

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Never called: `can_abort_transport` is False."""
        raise NotImplementedError("CUDA_IPC_REFERENCE cannot abort")


def _source_of(metadata: TensorTransportMetadata) -> CudaIpcMetadata:
    if not isinstance(metadata, CudaIpcMetadata):
        raise ValueError(f"{type(metadata).__name__} is not the metadata of CUDA_IPC_REFERENCE")
    try:
        intact = metadata.digest == metadata.expected_digest()
    except (ValueError, TypeError):
        intact = False
    if not intact:
        raise ValueError("garbled metadata: this is not what the source made")
    return metadata


def _open(
    obj_id: str, source: CudaIpcMetadata, device: torch.device
) -> tuple[Sequence[torch.UntypedStorage], torch.cuda.Event]:
    """The object's storages, as the current device sees them, and when they are complete."""
    pid, fd, pipe = source.loan
    shared = _shared_here.get(pipe)
    if shared is not None and shared.lent.fd == fd and pid == os.getpid():
        return shared.storages, shared.ready
    try:
        borrowed = Borrowed(pid, fd, pipe)
    except LookupError as error:
        gone = f"object {obj_id} is gone: its source (process {pid} of this host) freed it or ended"
        raise RuntimeError(f"{gone} ({error})") from None
    try:
        mapped = Mapped(borrowed, source.allocations)
    except CudaError as error:
        apart = f"GPU {source.gpu}, where object {obj_id} is, and {device} of this process do not reach each other"
        raise RuntimeError(
            f"CUDA cannot map the memory ({error}): either its source ended just now, or {apart}"
        ) from None
    storages = mapped.storages(rows(source.storages, 3))
    ready: Any = torch.cuda.Event.from_ipc_handle(device, source.ready)
    return storages, ready


@cache
def _host() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@cache
def _gpus() -> list[str]:
    """Identities of the GPUs that this process sees, in order."""
    return [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
