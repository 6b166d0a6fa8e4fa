"""What Ray sees of the transport."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports._layout import describe, landing
from reference_transports.nixl.agent import CELL_BYTES, Agent, Cell
from reference_transports.nixl.memory import Memory, settle
from reference_transports.nixl.transfer import Engine, NixlMetadata, Transfer, source_of

_DEVICE_TYPES = ("cpu", "cuda")
_INHERITED: list[Any] = []
"""What a forked process has from its parent. Without NIXL's threads, which stayed there, it can only be kept."""


@dataclass
class NixlFetchRequest(FetchRequest):
    """A fetch; dropping it ends the transfer."""

    transfer: Transfer

    def __del__(self) -> None:
        self.transfer.stop()


@dataclass(frozen=True)
class _Shared:
    """An object that others may read; what they read is kept in memory."""

    metadata: NixlMetadata
    memory: Memory
    cell: Cell


class NixlTransport(TensorTransportManager):
    """Reads torch tensors out of another process's memory, on CPUs and GPUs."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant for the same reason as the agent's
        # Owners build the transport too, and transfer nothing: they need not even have NIXL.
        self._engine: Engine | None = None
        self._shared: dict[str, _Shared] = {}  # by object id
        self._fetching: weakref.WeakSet[Transfer] = weakref.WeakSet()

    def tensor_transport_backend(self) -> str:
        """The name to register; Ray has a transport of its own that is called NIXL."""
        return "NIXL_REFERENCE"

    @staticmethod
    def is_one_sided() -> bool:
        """True: the receiver reads without the source's help."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """True: a receiver stops waiting at once, and reading soon after."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: an actor without NIXL says so when it is to use it."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> NixlMetadata:
        """Describe the tensors and let them be read, once: called again, it gives the same again.

        Raises:
            ValueError: a tensor is not a torch tensor in plain memory of a CPU or a GPU.
            ImportError: NIXL is not installed.
        """
        tensor_meta = describe(rdt_object, _DEVICE_TYPES)
        for index, tensor in enumerate(rdt_object):
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"tensor {index} cannot be carried: {type(tensor).__name__} is not a torch tensor")
        if not any(tensor.nbytes for tensor in rdt_object):
            return NixlMetadata(tensor_meta, rdt_object[0].device.type if rdt_object else None).sealed()
        agent = self._running().agent
        with self._lock:
            shared = self._shared.get(obj_id)
        if shared is None:
            new = _share(agent, rdt_object, tensor_meta)
            with self._lock:
                shared = self._shared.setdefault(obj_id, new)
            if shared is not new:  # another thread was faster
                _withdraw(agent, new)
        return shared.metadata

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing: a receiver finds the source by the object's metadata. Either actor may be None, for the driver."""
        return CommunicatorMetadata()

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        """Start to fetch into the target buffers if there are any, else into fresh tensors.

        On a GPU the reads begin when what is queued on the current stream is done.

        Raises:
            ValueError: the metadata are not ours, or the buffers do not fit. Nothing was written.
            ImportError: NIXL is not installed.
        """
        source = source_of(tensor_transport_metadata)
        device = source.tensor_device or "cpu"
        tensors = landing(source.tensor_meta, target_buffers, device, _DEVICE_TYPES)
        transfer = Transfer(obj_id, self._running(), source, tensors, lent=target_buffers is not None)
        with self._lock:
            self._fetching.add(transfer)
        transfer.begin()
        return NixlFetchRequest(obj_id, tensors, transfer)

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        """The tensors, when they have come.

        Raises:
            TimeoutError: they have not come within `timeout` seconds. The transfer goes on; wait again.
            ConnectionError: the source is gone or has freed the object, or the transfer was aborted. Nothing will be
                written into target buffers any more.
        """
        assert isinstance(fetch_request, NixlFetchRequest)
        transfer = fetch_request.transfer
        if not transfer.see_through(timeout):
            raise TimeoutError(f"object {fetch_request.obj_id} has not arrived after {timeout} s")
        if transfer.failure is not None:
            kind, text = transfer.failure  # a new exception for each wait: a shared one would keep their frames alive
            raise kind(text)
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
        raise NotImplementedError("NIXL_REFERENCE is one-sided")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Let nobody read the object any more; nothing if nobody could."""
        with self._lock:
            shared = self._shared.pop(obj_id, None)
        if shared is not None:
            _withdraw(self._running().agent, shared)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """End the fetches of this object that are in flight here; remember nothing."""
        with self._lock:
            transfers = [transfer for transfer in self._fetching if transfer.obj_id == obj_id]
        for transfer in transfers:
            transfer.abort()

    def _running(self) -> Engine:
        """This process's engine, started when it is needed first."""
        with self._lock:
            if self._engine is not None and self._engine.agent.process != os.getpid():
                _INHERITED.append((self._engine, self._shared))
                self._engine, self._shared = None, {}
            if self._engine is None:
                self._engine = Engine()
                weakref.finalize(self, self._engine.mover.close)
            return self._engine


def _share(agent: Agent, tensors: list[torch.Tensor], tensor_meta: list[Any]) -> _Shared:
    memory = Memory(agent, tensors, offered=True)
    try:
        memory.pack()
        settle(tensors, all_streams=True)
        cell = agent.take_cell()
    except BaseException:
        memory.close()
        raise
    token = secrets.token_bytes(CELL_BYTES)
    cell.view[:] = np.frombuffer(token, np.uint8)
    metadata = NixlMetadata(
        tensor_meta=tensor_meta,
        tensor_device=memory.device,
        agent=agent.name,
        token=token,
        cell=cell.table.tobytes(),
        places=memory.places.tobytes(),
        sections=[cell.section, memory.registration.section],
    )
    return _Shared(metadata.sealed(), memory, cell)


def _withdraw(agent: Agent, shared: _Shared) -> None:
    # In this order: once the cell is wiped, no receiver takes anything for the object's any more.
    agent.give_cell(shared.cell)
    shared.memory.close()
