"""Sequences of transport calls for the page on internals: played on the local engine while the docs are built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from rdt_conformance.engines.local import local_world
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.world import World
from rdt_conformance.payloads import kind_for
from rdt_conformance.report.diagram import draw
from rdt_conformance.report.diagram_svg import as_svg
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport

_TENSOR = kind_for(torch.Tensor).simple(64)


def drawn(name: str) -> str:
    """One of `_SEQUENCES` as a figure.

    Raises:
        KeyError: there is none of that name.
    """
    title, transport, play = _SEQUENCES[name]
    world = local_world(Registration("MINE", ("cpu",), transport, torch.Tensor))
    try:
        world.actors(2)
        world.history.clear()
        play(world)
        assert world.come_to_rest()
        steps = world.history.steps()
        assert world.reset()
    finally:
        world.close()
    return f"<figure>{as_svg(draw(steps), title)}<figcaption>{title}</figcaption></figure>"


def _argument(world: World) -> None:
    source, destination = world.actors(2)
    ref = source.produce(_TENSOR)
    destination.consume(ref).result().drop()
    ref.drop()


def _get(world: World) -> None:
    source, destination = world.actors(2)
    refs = [source.produce(_TENSOR), source.produce(_TENSOR)]
    destination.get(*refs).result().drop()
    for ref in refs:
        ref.drop()


def _put(world: World) -> None:
    source, destination = world.actors(2)
    ref = source.put(source.build(_TENSOR)).result()
    destination.consume(ref).result().drop()
    ref.drop()


class _SendFails(TcpTransport):
    """Cannot send, though it can do all else."""

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Always raises."""
        raise ConnectionError("the network is down")


def _failure(world: World) -> None:
    source, destination = world.actors(2)
    assert destination.consume(source.produce(_TENSOR)).error() is not None


_SEQUENCES: dict[str, tuple[str, type[TensorTransportManager], Callable[[World], None]]] = {
    "argument": ("One-sided: a task's result is the argument of another task", SocketPullTransport, _argument),
    "two_sided": ("Two-sided: the same, with a send", TcpTransport, _argument),
    "get": ("One-sided: a get of two references", SocketPullTransport, _get),
    "put": ("One-sided: an actor puts an object, another one gets it as an argument", SocketPullTransport, _put),
    "failure": ("Two-sided: a send fails, and both sides are aborted", _SendFails, _failure),
}
