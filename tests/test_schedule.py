"""Where lanes go on one at a time: in the order that was chosen, and past those that are blocked."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from rdt_conformance import author
from rdt_conformance.checks.orders import Interruption, Switches
from rdt_conformance.engines.base import Hung, Lane, Pending
from rdt_conformance.engines.local import local_world
from rdt_conformance.engines.reference.asleep import Sleepers
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.schedule import Order, Stop
from rdt_conformance.engines.reference.verbs import Verbs
from rdt_conformance.engines.reference.waiting import wait_until, waits
from rdt_conformance.engines.world import Process, World
from rdt_conformance.payloads import kind_for
from reference_transports.inline import InlineTransport

pytestmark = pytest.mark.timeout(60)


class Waits(InlineTransport):
    """Its receives wait until something is freed in the same process."""

    def __init__(self) -> None:
        self._freed = threading.Event()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        self._freed.wait(30)
        return super().recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        self._freed.set()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = local_world(Registration("INLINE", ("cpu",), getattr(request, "param", InlineTransport), torch.Tensor))
    world.actors(2)
    yield world
    world.close()


def test_a_lane_at_which_there_is_a_switch_comes_after_all_others_from_then_on() -> None:
    one, two, three = (Stop(name, Lane.MAIN, job, False) for job, name in enumerate(("c", "a", "b")))
    order = Switches(frozenset({1, 2, 4}))
    chosen = [order.choose(stops).process for stops in ((one, two), (one, two), (one, two, three), (one, two))]
    assert chosen == ["a", "c", "b", "a"], "who is behind stays behind those that are not, and the latest is the last"


class LastFirst(Order):
    """Newer jobs first."""

    def choose(self, stops: Sequence[Stop]) -> Stop:
        return stops[-1]


def calls_in_order(world: World, order: Order, folders: tuple[str, ...] = ()) -> list[str]:
    """What an actor's two lanes do when a task describes an object while another one is freed."""
    (actor,) = world.actors(1)
    payload = kind_for(torch.Tensor).simple(4)
    first, second = actor.build(payload), actor.build(payload)
    metadata = actor.extract("first", first).result()
    world.history.clear()
    with world.in_order(order, folders):
        under_way: list[Pending[Any]] = [actor.extract("second", second), actor.collect("first", metadata, first)]
        for pending in under_way:
            pending.result()
    return [step.what.partition("(")[0] for step in world.history.steps()]


def test_the_order_is_the_one_that_was_chosen(world: World) -> None:
    describe, free = "extract_tensor_transport_metadata", "garbage_collect"
    assert calls_in_order(world, Switches()) == [describe, free]
    assert calls_in_order(world, Switches(frozenset({1}))) == [free, describe]
    assert calls_in_order(world, LastFirst()) == [free, describe]


def test_an_order_says_what_it_is() -> None:
    assert repr(Switches()) == "as submitted"
    assert repr(Switches(frozenset({3, 1}))) == "as submitted, but switches before call 1 and before call 3"


def test_a_call_is_interrupted_once_before_each_of_its_lines(world: World) -> None:
    tried: set[tuple[str, int]] = set()
    stops: list[str] = []
    for share in range(Interruption.SHARES):
        while True:
            order = Interruption(tried, share)
            told = calls_in_order(world, order, author.folders_of(InlineTransport))
            if not order.happened:
                break
            describe, stop, free = told
            assert (describe, free) == ("extract_tensor_transport_metadata", "garbage_collect")
            stops.append(stop)
        assert told == ["extract_tensor_transport_metadata", "garbage_collect"]
        assert {line % Interruption.SHARES for _, line in tried} == set(range(share + 1))
    assert len(stops) == len(tried) == len(set(stops))
    assert {file.rpartition("/")[2] for file, _ in tried} >= {"inline.py", "_layout.py"}
    assert any("return InlineMetadata" in stop for stop in stops)


def described(world: World) -> tuple[Process, bytes, bytes]:
    """Who is to receive the object "it", and what that takes."""
    source, destination = world.actors(2)
    tensors = source.build(kind_for(torch.Tensor).simple(4))
    metadata = source.extract("it", tensors).result()
    return destination, metadata, world.driver.communicator(source, destination).result()


@pytest.mark.parametrize("world", [Waits], indirect=True)
def test_a_blocked_call_is_seen_and_others_go_on(world: World) -> None:
    destination, metadata, comm = described(world)
    with world.in_order(Switches(), ()):
        receiving = destination.recv("it", metadata, comm)
        destination.abort("it", comm).result()
        receiving.result()


@pytest.mark.parametrize("world", [Waits], indirect=True)
def test_what_nothing_wakes_is_a_hang_in_bounded_time(world: World) -> None:
    destination, metadata, comm = described(world)
    with world.in_order(Switches(), ()):
        receiving = destination.recv("it", metadata, comm)
        with pytest.raises(Hung, match="recv on actor2") as hung:
            receiving.result(0.3)
    assert "_freed.wait" in hung.value.stacks
    destination.abort("it", comm).result()
    receiving.result()


def test_verbs_may_wait_for_a_lane_that_waits_for_its_turn(world: World) -> None:
    """A reference can be lent only when its object exists, which takes a call of the transport."""
    source, destination = world.actors(2)
    payload = kind_for(torch.Tensor).simple(4)
    with world.in_order(LastFirst(), ()):
        held = destination.get(source.produce(payload)).result()
        assert held.differences(payload) == []


def test_after_the_end_lanes_go_on_by_themselves(world: World) -> None:
    source, destination = world.actors(2)
    payload = kind_for(torch.Tensor).simple(4)
    with world.in_order(Switches(), ()):
        pending = destination.consume(source.produce(payload))  # nothing is waited for, so nothing has begun
    assert pending.result().part(0).differences(payload) == []
    assert world.reset()


def test_what_waits_for_the_reference_is_known_to_wait_and_not_to_once_it_has_come() -> None:
    changed, came = threading.Condition(), threading.Event()

    def work() -> None:
        with changed:
            wait_until(changed, came.is_set, None)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while not waits(thread):
            pass
        came.set()
        assert not waits(thread)
    finally:
        came.set()
        with changed:
            changed.notify_all()
        thread.join()


def test_verbs_have_a_thread_each_as_long_as_they_are_under_way() -> None:
    changed, stuck = threading.Condition(), threading.Event()
    verbs = Verbs(changed)
    one = verbs.run(threading.get_ident).result(10)
    assert verbs.run(threading.get_ident).result(10) == one
    waiting = verbs.run(stuck.wait)
    failing = verbs.run(lambda: int("no number"))
    assert isinstance(failing.exception(10), ValueError)
    (thread,) = verbs.under_way()
    assert thread.ident == one and len(verbs.threads()) == 2
    del failing
    verbs.close()
    stuck.set()
    assert waiting.result(10)
    for thread in verbs.threads():
        thread.join(10)
        assert not thread.is_alive()


def test_transfers_that_have_ended_are_forgotten_though_their_deadlines_are_far_away(world: World) -> None:
    source, destination = world.actors(2)
    payload = kind_for(torch.Tensor).simple(4)
    for _ in range(50):
        destination.consume(source.produce(payload)).result().drop()
    assert len(world.host.driver.owner._monitor._deadlines) <= 1


def test_threads_that_sleep_and_threads_that_do_not() -> None:
    wake, run = threading.Event(), threading.Event()

    def work() -> None:
        wake.wait()
        while not run.is_set():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    sleepers = Sleepers()
    try:
        before, asleep = None, sleepers.look([thread])
        while asleep is None or asleep != before:  # it has to get to where it waits
            before, asleep = asleep, sleepers.look([thread])
        wake.set()
        while sleepers.look([thread]) == asleep:
            pass
    finally:
        wake.set()
        run.set()
        thread.join()
        sleepers.close()


def test_lanes_that_take_turns_share_a_processor_and_are_let_go_of(world: World) -> None:
    anywhere = os.sched_getaffinity(0)
    assert len(anywhere) > 1, "with one processor there is nothing to see"
    threads = world._threads
    assert threads is not None
    over = threading.Event()
    bystander, started = (threading.Thread(target=over.wait, daemon=True) for _ in range(2))
    bystander.start()
    lanes = [lane.thread for lane in threads.lanes()]
    os.sched_setaffinity(lanes[0].native_id or 0, {min(anywhere)})  # its own choice

    def allowed(*those: threading.Thread) -> list[set[int]]:
        return [os.sched_getaffinity(thread.native_id or 0) for thread in those]

    before = allowed(threading.current_thread(), *lanes)
    with world.in_order(Switches(), ()):
        started.start()
        one, *others = allowed(threading.current_thread(), started, *lanes)
        assert len(one) == 1 and others == [one] * len(others)
        assert allowed(bystander) == [anywhere]
    assert allowed(threading.current_thread(), *lanes) == before
    assert allowed(bystander, started) == [anywhere] * 2
    over.set()
