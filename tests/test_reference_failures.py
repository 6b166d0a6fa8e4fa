"""The reference RDT when transfers fail: who is told, who is killed, and what the consumer sees."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from local_workers import workers
from ray.experimental import CommunicatorMetadata, TensorTransportManager

from rdt_conformance.engines.base import Hung
from rdt_conformance.engines.local import local_world
from rdt_conformance.engines.reference.errors import ActorDiedError, ProtocolError
from rdt_conformance.engines.reference.groups import Groups
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.worker import Settings
from rdt_conformance.engines.world import World
from rdt_conformance.payloads import kind_for
from reference_transports.inline import InlineTransport
from reference_transports.tcp import TcpTransport

PAYLOAD = kind_for(torch.Tensor).simple(100)


def world_of(transport: type[TensorTransportManager], **settings: float) -> World:
    return local_world(Registration("T", ("cpu",), transport, torch.Tensor), Settings(**settings))


def lanes(world: World, method: str) -> list[tuple[str, str]]:
    return sorted((step.process, step.lane) for step in world.history.steps() if step.what.startswith(method))


class SendFails(TcpTransport):
    fails = True

    def send_multiple_tensors(self, *args: Any) -> None:
        if self.fails:
            raise RuntimeError("send is broken")
        super().send_multiple_tensors(*args)


class RecvFails(TcpTransport):
    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        raise RuntimeError("recv is broken")


@pytest.mark.parametrize("transport", [SendFails, RecvFails])
def test_a_failed_half_aborts_both_sides_and_the_consumer_is_told(transport: type[TcpTransport]) -> None:
    world = world_of(transport)
    source, destination = world.actors(2)
    error = destination.consume(source.produce(PAYLOAD)).error()
    assert isinstance(error, Exception)
    assert world.host.wait_idle(10), "the other half stayed blocked"
    assert lanes(world, "abort_transport") == [
        ("actor1", "_ray_system_error"),
        ("actor2", "_ray_system_error"),
    ]
    world.close()


def test_actors_live_on_after_an_abort() -> None:
    world = world_of(SendFails)
    source, destination = world.actors(2)
    assert destination.consume(source.produce(PAYLOAD)).error() is not None
    assert world.host.wait_idle(10)
    instance: Any = workers(world)[source.name].registry.instance("T")
    instance.fails = False
    assert destination.consume(source.produce(PAYLOAD)).result().differences(PAYLOAD) == []
    assert world.reset()
    world.close()


class CannotAbort(SendFails):
    @staticmethod
    def can_abort_transport() -> bool:
        return False


def test_both_actors_are_killed_if_the_transport_cannot_abort() -> None:
    world = world_of(CannotAbort)
    source, destination = world.actors(2)
    assert isinstance(destination.consume(source.produce(PAYLOAD)).error(), ActorDiedError)
    assert "driver" in workers(world)
    assert source.name not in workers(world) and destination.name not in workers(world)
    assert lanes(world, "abort_transport") == []
    world.close()


class Stuck(TcpTransport):
    """Its send does nothing, so that recv waits until it is aborted."""

    def send_multiple_tensors(self, *args: Any) -> None:
        return


def test_a_transfer_that_takes_too_long_is_aborted() -> None:
    world = world_of(Stuck, fetch_fail_timeout=0.3)
    source, destination = world.actors(2)
    assert destination.consume(source.produce(PAYLOAD)).error() is not None
    assert world.host.wait_idle(10)
    assert len(lanes(world, "abort_transport")) == 2
    world.close()


class OneSidedRecvFails(InlineTransport):
    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        raise RuntimeError("recv is broken")


def test_a_one_sided_receive_that_raises_interrupts_nobody() -> None:
    world = world_of(OneSidedRecvFails)
    source, destination = world.actors(2)
    error = destination.consume(source.produce(PAYLOAD)).error()
    assert isinstance(error, RuntimeError) and "recv is broken" in str(error)
    assert world.reset(), "everybody lives on, although this transport cannot abort"
    assert {source.name, destination.name} <= set(workers(world))
    world.close()


class OneSidedStuck(InlineTransport):
    """Its receives last until they are aborted."""

    def __init__(self) -> None:
        super().__init__()
        self._aborted = threading.Event()

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        self._aborted.wait(10)
        raise RuntimeError("aborted")

    def abort_transport(self, *args: Any) -> None:
        self._aborted.set()


def test_one_sided_transfers_are_aborted_at_the_destination_only() -> None:
    world = world_of(OneSidedStuck, fetch_fail_timeout=0.3)
    source, destination = world.actors(2)
    assert destination.consume(source.produce(PAYLOAD)).error() is not None
    assert world.host.wait_idle(10)
    assert lanes(world, "abort_transport") == [("actor2", "_ray_system_error")]
    world.close()


class NoCommunicator(InlineTransport):
    def get_communicator_metadata(self, *args: Any) -> Any:
        raise LookupError("no communicator")


@pytest.mark.parametrize("before", [True, False], ids=["object exists", "object does not exist yet"])
def test_an_error_of_the_owner_reaches_the_consumer(before: bool) -> None:
    world = world_of(NoCommunicator)
    source, destination = world.actors(2)
    if before:
        ref = source.produce(PAYLOAD)
        assert world.host.wait_idle(5)
        arriving = destination.consume(ref)
    else:
        with source.busy():
            arriving = destination.consume(source.produce(PAYLOAD))
    assert isinstance(arriving.error(), LookupError)
    world.close()


class TooFew(InlineTransport):
    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        return []


def test_a_wrong_number_of_tensors_is_noticed() -> None:
    world = world_of(TooFew)
    source, destination = world.actors(2)
    error = destination.consume(source.produce(PAYLOAD)).error()
    assert isinstance(error, ProtocolError) and "0 tensors" in str(error)
    world.close()


def test_a_stuck_call_is_a_hang_with_stacks() -> None:
    world = world_of(OneSidedStuck)
    source, destination = world.actors(2)
    arriving = destination.consume(source.produce(PAYLOAD))
    with pytest.raises(Hung) as hung:
        arriving.result(0.3)
    assert "recv_multiple_tensors" in hung.value.stacks
    stuck = workers(world)[destination.name].registry.built("T")
    assert isinstance(stuck, OneSidedStuck)
    stuck.abort_transport()
    assert isinstance(arriving.error(), RuntimeError)
    assert world.reset()
    world.close()


def test_two_sided_halves_are_submitted_in_one_global_order() -> None:
    world = world_of(TcpTransport)
    one, two, three = world.actors(3)
    refs = [one.produce(PAYLOAD), two.produce(PAYLOAD), three.produce(PAYLOAD)]
    arriving = [two.consume(refs[0]), three.consume(refs[1]), one.consume(refs[2])]
    for pending in arriving:
        assert pending.result().differences(PAYLOAD) == []
    assert lanes(world, "send_multiple") == [(actor.name, "_ray_system") for actor in (one, two, three)]
    assert world.reset()
    world.close()


# --- collective groups ------------------------------------------------------------------------------------------------


def test_groups() -> None:
    groups = Groups()
    with pytest.raises(ValueError, match="no group"):
        groups.between("T", "a", "b")
    group = groups.create("g", "t", ("a", "b"))
    assert groups.between("T", "b", "a") is group and group.rank("b") == 1
    with pytest.raises(ValueError, match="already exists"):
        groups.create("g", "t", ("a", "b"))
    groups.create("g2", "t", ("a", "b", "c"))
    with pytest.raises(ValueError, match="2 groups"):
        groups.between("T", "a", "b")
    groups.destroy("g2")
    with pytest.raises(ValueError, match="does not exist"):
        groups.destroy("g2")
    with pytest.raises(ValueError, match="each named once"):
        groups.create("g3", "t", ("a", "a"))


@dataclass
class InGroup(CommunicatorMetadata):
    communicator_name: str = "pair"


class Grouped(OneSidedStuck):
    def get_communicator_metadata(self, *args: Any) -> InGroup:
        return InGroup()


def test_a_failed_transfer_destroys_its_group() -> None:
    world = world_of(Grouped, fetch_fail_timeout=0.2)
    source, destination = world.actors(2)
    groups = workers(world)["driver"].groups
    assert isinstance(groups, Groups)
    groups.create("pair", "T", (source.name, destination.name))
    for _ in range(2):  # the second time it is gone already
        assert destination.consume(source.produce(PAYLOAD)).error() is not None
        assert world.host.wait_idle(10)
    with pytest.raises(ValueError, match="no group"):
        groups.between("T", source.name, destination.name)
    world.close()
