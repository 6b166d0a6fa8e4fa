"""What the tests of the NIXL transport share."""

from __future__ import annotations

import pickle
import time
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata

from reference_transports.nixl import NixlTransport

SOON = 20.0
"""Seconds within which whatever should happen has happened, on a machine that is busy with other things."""
COMM = CommunicatorMetadata()


def extract(source: NixlTransport, obj_id: str, tensors: list[Any]) -> Any:
    return pickle.loads(pickle.dumps(source.extract_tensor_transport_metadata(obj_id, tensors)))


def send(
    source: NixlTransport, destination: NixlTransport, tensors: list[Any], buffers: Any = None, obj_id: str = "object"
) -> list[torch.Tensor]:
    """A whole life of an object."""
    metadata = extract(source, obj_id, tensors)
    received = destination.recv_multiple_tensors(obj_id, metadata, COMM, buffers)
    source.garbage_collect(obj_id, metadata, tensors)
    return received


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in expected] and all(
        bool((a.contiguous().view(-1) == b.contiguous().resolve_conj().resolve_neg().view(-1)).all())
        for a, b in zip(found, expected, strict=True)
    )


def settled(condition: Any) -> bool:
    give_up = time.monotonic() + SOON
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.005)
    return condition()


def in_flight(destination: Any) -> set[str]:
    """What is still on its way; requests of earlier tests may be held by the exceptions that these ended with."""
    return {each.obj_id for each in destination._fetching if not each._ended.is_set()}
