"""Help for the tests of the socket transports: two instances in one process, on threads."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import torch
from ray.experimental import TensorTransportManager, TensorTransportMetadata

SOON = 10.0
"""Seconds within which whatever should happen has happened, on a machine that is busy with other things."""


class Pair:
    """A source and a destination, and an owner's part in between."""

    def __init__(self, cls: type[TensorTransportManager]) -> None:
        self.source: Any = cls()
        self.destination: Any = cls()
        self.lanes = ThreadPoolExecutor(max_workers=100)
        self.communicators: list[Any] = []

    def extract(self, obj_id: str, tensors: list[Any]) -> TensorTransportMetadata:
        return pickle.loads(pickle.dumps(self.source.extract_tensor_transport_metadata(obj_id, tensors)))

    def communicator(self) -> Any:
        self.communicators.append(pickle.loads(pickle.dumps(self.source.get_communicator_metadata(None, None, "NAME"))))
        return self.communicators[-1]

    def send(self, tensors: list[Any], metadata: Any, communicator: Any) -> Future[None]:
        return self.lanes.submit(self.source.send_multiple_tensors, tensors, metadata, communicator)

    def recv(self, obj_id: str, metadata: Any, communicator: Any, buffers: Any = None) -> Future[list[Any]]:
        return self.lanes.submit(self.destination.recv_multiple_tensors, obj_id, metadata, communicator, buffers)

    def transfer(
        self, obj_id: str, tensors: list[Any], buffers: list[Any] | None = None, metadata: Any = None
    ) -> list[Any]:
        metadata = metadata or self.extract(obj_id, tensors)
        communicator = self.communicator()
        received = self.recv(obj_id, metadata, communicator, buffers)
        if not self.source.is_one_sided():
            sent = self.send(tensors, metadata, communicator)
            if received.exception(SOON):
                self.source.abort_transport(obj_id, communicator)
                sent.exception(SOON)
            else:
                sent.result(SOON)
        return received.result(SOON)

    def close(self) -> None:
        """End what a failed test has left in flight."""
        for transport in (self.source, self.destination):
            for communicator in self.communicators:
                transport.abort_transport("", communicator)
        self.lanes.shutdown()
        self.source = self.destination = None

    def free(self, obj_id: str, metadata: Any = None, tensors: Any = ()) -> None:
        self.source.garbage_collect(obj_id, metadata, list(tensors))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


@contextmanager
def paused(transport: Any) -> Iterator[None]:
    """The transport serves nobody."""
    with transport._lock:
        yield


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> list[str]:
    """Those of the transports. Other test files may have left theirs to the garbage collector."""
    running = set(threading.enumerate()) - _EARLIER
    return sorted(thread.name for thread in running if thread.name.startswith("rdt-socket"))


_EARLIER: set[threading.Thread] = set()


@contextmanager
def pair_of(cls: type[TensorTransportManager]) -> Iterator[Pair]:
    """A pair of them, alone."""
    gc.collect()
    with suppress(AssertionError):
        until(lambda: not threads())  # those of the test before
    _EARLIER.update(threading.enumerate())
    made = Pair(cls)
    try:
        yield made
    finally:
        made.close()


def raw(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""
