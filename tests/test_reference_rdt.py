"""The reference RDT, feature by feature: objects from their making to their freeing."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from local_workers import workers
from ray.experimental import TensorTransportManager

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.local import local_world
from rdt_conformance.engines.reference.errors import (
    ActorDiedError,
    GetTimeoutError,
    NeedsRayError,
    ObjectFetchTimedOutError,
    ProtocolError,
)
from rdt_conformance.engines.reference.registry import Registration, Registry
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.engines.world import World
from rdt_conformance.payloads import kind_for
from reference_transports.inline import InlineTransport
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport

KIND = kind_for(torch.Tensor)
PAYLOAD = KIND.simple(100)


def world_of(transport: type[TensorTransportManager], **settings: float) -> World:
    return local_world(Registration("T", ("cpu",), transport, torch.Tensor), Settings(**settings))


@pytest.fixture
def world() -> Iterator[World]:
    world = world_of(InlineTransport)
    yield world
    assert world.reset(), "something was never freed"
    world.close()


def calls(world: World, method: str) -> list[tuple[str, str]]:
    """Where and on which lane a transport method was called."""
    return [(step.process, step.lane) for step in world.history.steps() if step.what.startswith(method)]


# --- registration -----------------------------------------------------------------------------------------------------


def test_names_are_upper_case_and_taken_once() -> None:
    registry = Registry()
    registry.register("mine", ["cpu"], InlineTransport, torch.Tensor)
    assert registry.find("Mine").name == "MINE"
    with pytest.raises(ValueError, match="already registered"):
        registry.register("MINE", ["cpu"], InlineTransport, torch.Tensor)
    with pytest.raises(ValueError, match="no subclass"):
        registry.register("other", ["cpu"], dict, torch.Tensor)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown tensor transport"):
        registry.find("other")


def test_one_instance_per_process_built_on_first_use() -> None:
    registry = Registry((Registration("T", ("cpu",), InlineTransport, torch.Tensor),))
    assert registry.built("t") is None
    assert registry.instance("t") is registry.instance("T") is registry.built("t")


def test_a_restarted_actor_knows_the_transport(world: World) -> None:
    source, destination = world.actors(2)
    destination.kill()
    assert isinstance(destination.ask("is_one_sided").error(), ActorDiedError)
    world.restart(destination)
    assert destination.consume(source.produce(PAYLOAD)).result().differences(PAYLOAD) == []


# --- task returns and references --------------------------------------------------------------------------------------


def _nested(worker: Worker) -> dict[str, Any]:
    tensor = torch.arange(3)
    return {"weights": [tensor, (tensor, 7)], "name": "layer", "none": None}


def _look_at_nested(value: Any) -> tuple[bool, Any, Any]:
    (nested,) = value
    first, (second, seven) = nested["weights"]
    return first is second, first.tolist(), (seven, nested["name"], nested["none"])


def test_tensors_come_out_of_any_structure_and_back_in(world: World) -> None:
    source, destination = world.actors(2)
    ref = world.own(world.host.driver.owner.create_by_task(source.name, _nested, "T"))
    held = destination.consume(ref).result()
    assert held.apply(_look_at_nested) == (True, [0, 1, 2], (7, "layer", None))
    (extract,) = [step for step in world.history.steps() if step.what.startswith("extract")]
    assert "1 tensor)" in extract.what, "the same tensor twice travels once"


@pytest.mark.parametrize(("transport", "told"), [(SocketPullTransport, 1), (InlineTransport, 0)])
def test_the_drop_of_a_request_that_may_do_something_then_is_told(transport: type, told: int) -> None:
    world = world_of(transport)
    (source, destination), obj_id = world.actors(2), world.new_object_id()
    tensors = source.build(PAYLOAD, "cpu")
    metadata = source.extract(obj_id, tensors).result(10)
    comm = destination.communicator(None, None).result(10)
    destination.fetch(obj_id, metadata, comm).result(10).drop()
    assert len(calls(world, "drop of the request")) == told
    source.collect(obj_id, metadata, tensors).result(10)
    assert world.reset()
    world.close()


def test_an_object_without_tensors_is_fine(world: World) -> None:
    source, destination = world.actors(2)
    empty = KIND.simple(0, 0)
    ref = source.produce(empty)
    assert destination.consume(ref).result().differences(empty) == []
    assert destination.get(ref).result().differences(empty) == []


def test_positional_keyword_and_repeated_references(world: World) -> None:
    source, destination = world.actors(2)
    one, two = source.produce(PAYLOAD), source.produce(PAYLOAD.inverse())
    held = destination.consume(one, two, again=one).result()
    assert held.differences(PAYLOAD, PAYLOAD.inverse(), PAYLOAD) == []
    assert len(calls(world, "recv_multiple_tensors")) == 2, "one transfer per object and call"


def test_to_the_producer_itself_by_reference_with_a_warning(world: World) -> None:
    source, destination = world.actors(2)
    tensors = source.build(PAYLOAD)
    ref = source.produce(tensors)
    destination.consume(ref).result()
    with pytest.warns(UserWarning, match="passed there by reference"):
        back = source.consume(ref).result()
    assert source.run(_share, tensors.key, back.key).result()
    assert calls(world, "recv_multiple_tensors") == [(destination.name, "_ray_system")]


def _share(worker: Worker, tensors: int, objects: int) -> bool:
    return worker.held[objects][0][0] is worker.held[tensors][0]


def test_a_producers_error_reaches_every_consumer(world: World) -> None:
    source, destination = world.actors(2)
    ref = source.produce(KeyError("lost"))
    assert isinstance(destination.consume(ref).error(), KeyError)
    assert isinstance(destination.get(ref).error(), KeyError)
    assert calls(world, "recv") == []


# --- put and get ------------------------------------------------------------------------------------------------------


def test_put_by_actor_and_driver(world: World) -> None:
    one, two = world.actors(2)
    by_actor = one.put(one.build(PAYLOAD)).result()
    by_driver = world.driver.put(world.driver.build(PAYLOAD.inverse())).result()
    assert two.get(by_actor, by_driver).result().differences(PAYLOAD, PAYLOAD.inverse()) == []
    assert world.driver.get(by_actor, by_driver).result().differences(PAYLOAD, PAYLOAD.inverse()) == []


def test_fetches_all_begin_before_the_first_wait(world: World) -> None:
    (source,) = world.actors(1)
    refs = [source.produce(PAYLOAD) for _ in range(3)]
    world.driver.get(*refs, refs[0]).result()
    order = [step.what.split("_")[0] for step in world.history.steps() if step.what.startswith(("fetch", "wait"))]
    assert order == ["fetch"] * 3 + ["wait"] * 3


def test_repeated_get_and_get_through_the_object_store(world: World) -> None:
    (source,) = world.actors(1)
    ref = source.produce(PAYLOAD)
    for _ in range(2):
        assert world.driver.get(ref).result().differences(PAYLOAD) == []
    fetched = len(calls(world, "fetch"))
    assert world.driver.get(ref, through_store=True).result().differences(PAYLOAD) == []
    assert len(calls(world, "fetch")) == fetched


def test_a_primary_copy_is_not_fetched(world: World) -> None:
    ref = world.driver.put(world.driver.build(PAYLOAD)).result()
    assert world.driver.get(ref).result().differences(PAYLOAD) == []
    assert calls(world, "fetch") == []


class Never(SocketPullTransport):
    """Its fetches never complete."""

    def wait_fetch_complete(self, fetch_request: Any, timeout: float = -1) -> list[Any]:
        assert timeout >= 0
        raise TimeoutError


@pytest.mark.parametrize(
    ("users", "error"), [(0.05, GetTimeoutError), (None, ObjectFetchTimedOutError), (60, ObjectFetchTimedOutError)]
)
def test_the_users_and_the_systems_timeout_are_told_apart(users: float | None, error: type) -> None:
    world = world_of(Never, fetch_fail_timeout=0.2)
    (source,) = world.actors(1)
    assert isinstance(world.driver.get(source.produce(PAYLOAD), timeout=users).error(), error)
    world.close()


def test_two_sided_get_and_put_are_clear_errors() -> None:
    world = world_of(TcpTransport)
    (source,) = world.actors(1)
    ref = source.produce(PAYLOAD)
    error = world.driver.get(ref).error()
    assert isinstance(error, ValueError) and "one-sided" in str(error)
    assert world.driver.get(ref, through_store=True).result().differences(PAYLOAD) == []
    error = world.driver.put(world.driver.build(PAYLOAD)).error()
    assert isinstance(error, ValueError) and "one-sided" in str(error)
    assert world.reset()
    world.close()


# --- target buffers and devices ---------------------------------------------------------------------------------------


def _same_memory(value: Any, other: Any) -> bool:
    return value[0][0] is other


def test_target_buffers_are_filled_and_held_weakly(world: World) -> None:
    (source,) = world.actors(1)
    ref = source.produce(PAYLOAD)
    buffers = KIND.buffers(PAYLOAD)
    targets = world.driver.make(_listed, buffers)
    held = world.driver.get(ref, buffers=targets).result()
    assert held.apply(_same_memory, buffers[0])
    assert PAYLOAD.differences(buffers) == []
    worker = workers(world)["driver"]
    entry = worker.owner.entry(ref)
    entry.target_buffers = [_dead_reference()]
    assert world.driver.get(ref).result().differences(PAYLOAD) == []


def _listed(buffers: list[Any]) -> list[Any]:
    return [buffers]


def _dead_reference() -> Any:
    import weakref

    reference = weakref.ref(torch.empty(1))
    gc.collect()
    assert reference() is None
    return reference


@pytest.mark.parametrize("wrong", ["count", "shape", "dtype", "layout"])
def test_target_buffers_are_checked_first(world: World, wrong: str) -> None:
    (source,) = world.actors(1)
    ref = source.produce(PAYLOAD)
    good = KIND.buffers(PAYLOAD)
    bad = {
        "count": [*good, *good],
        "shape": [good[0].reshape(2, -1)],
        "dtype": [good[0].view(torch.int8)],
        "layout": [torch.empty(200, dtype=torch.uint8)[::2]],
    }[wrong]
    error = world.driver.get(ref, buffers=world.driver.make(_listed, bad)).error()
    assert isinstance(error, ValueError)
    assert calls(world, "fetch") == []


def test_target_device(world: World) -> None:
    (source,) = world.actors(1)
    ref = source.produce(PAYLOAD)
    assert world.driver.get_onto(ref, "cpu").result().differences(PAYLOAD) == []
    error = world.driver.get_onto(ref, "cuda:0").error()
    assert isinstance(error, ValueError) and "cuda:0" in str(error)


# --- freeing ----------------------------------------------------------------------------------------------------------


def test_wait_freed(world: World) -> None:
    (source,) = world.actors(1)
    tensors = source.build(PAYLOAD)
    ref = source.produce(tensors)
    world.driver.get(ref).result()
    assert isinstance(source.wait_freed(tensors, 0.05).error(), TimeoutError)
    ref.drop()
    source.wait_freed(tensors, 5).result()


def test_freed_on_the_lane_that_ray_uses(world: World) -> None:
    (source,) = world.actors(1)
    source.produce(PAYLOAD).drop()
    world.driver.put(world.driver.build(PAYLOAD)).result().drop()
    assert world.host.wait_idle(5)
    assert sorted(calls(world, "garbage_collect")) == [("actor1", "_ray_system"), ("driver", "io")]


def test_an_object_dropped_before_it_exists_is_freed_once_it_does(world: World) -> None:
    (source,) = world.actors(1)
    with source.busy():
        source.produce(PAYLOAD).drop()
        assert calls(world, "extract") == []
    assert world.host.wait_idle(5)
    assert len(calls(world, "garbage_collect")) == 1


def test_a_task_keeps_its_arguments_until_it_has_ended(world: World) -> None:
    source, destination = world.actors(2)
    ref = source.produce(PAYLOAD)
    with destination.busy():
        arriving = destination.consume(ref)
        ref.drop()
        source.ask("is_one_sided").result()
        assert calls(world, "garbage_collect") == []
    assert arriving.result().differences(PAYLOAD) == []
    assert world.host.wait_idle(5)
    assert len(calls(world, "garbage_collect")) == 1


def test_a_borrower_keeps_the_object_and_lets_go_of_it(world: World) -> None:
    source, borrower = world.actors(2)
    ref = source.produce(PAYLOAD)
    kept = world.host.driver.owner.call_task(borrower.name, _keep_ref, ([ref],)).result(5)
    ref.drop()
    assert world.host.wait_idle(5)
    assert calls(world, "garbage_collect") == []
    assert borrower.run(_get_kept, kept).result() == []
    workers(world)[borrower.name].held.clear()
    assert world.host.wait_idle(5)
    assert len(calls(world, "garbage_collect")) == 1
    assert all(not worker.owner.known() for worker in workers(world).values())


def _keep_ref(worker: Worker, refs: list[Any]) -> int:
    return worker.keep(refs[0])


def _get_kept(worker: Worker, key: int) -> list[str]:
    (value,) = worker.owner.get([worker.held[key]])
    return PAYLOAD.differences(value)


def test_a_reference_handed_back_and_forth_is_counted_once(world: World) -> None:
    source, borrower = world.actors(2)
    ref = source.produce(PAYLOAD)
    returned = world.host.driver.owner.call_task(borrower.name, _give_back, ([ref],)).result(5)
    assert returned.obj_id == ref.obj_id and returned.holder == "driver"
    ref.drop()
    assert world.host.wait_idle(5) and calls(world, "garbage_collect") == []
    returned.drop()
    assert world.host.wait_idle(5) and len(calls(world, "garbage_collect")) == 1


def _give_back(worker: Worker, refs: list[Any]) -> Any:
    return refs[0]


def test_a_raising_garbage_collect_still_frees() -> None:
    class Raises(InlineTransport):
        def garbage_collect(self, *args: Any) -> None:
            raise RuntimeError("cannot")

    world = world_of(Raises)
    (source,) = world.actors(1)
    source.produce(PAYLOAD).drop()
    assert world.reset()
    world.close()


def test_an_extract_that_raises_leaves_no_object_behind() -> None:
    class Refuses(InlineTransport):
        def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
            raise ValueError("not this one")

    world = world_of(Refuses)
    source, destination = world.actors(2)
    ref = source.produce(PAYLOAD)
    assert isinstance(destination.consume(ref).error(), ValueError)
    assert workers(world)[source.name].store.objects() == []
    world.close()


def test_a_device_that_is_not_registered_is_refused_and_collected() -> None:
    world = local_world(Registration("T", ("cuda",), InlineTransport, torch.Tensor))
    source, destination = world.actors(2)
    error = destination.consume(source.produce(PAYLOAD, "cpu")).error()
    assert isinstance(error, ProtocolError) and "tensor_device is 'cpu' (str)" in str(error)
    assert len(calls(world, "garbage_collect")) == 1
    world.close()


# --- what a transport gets to see -------------------------------------------------------------------------------------


def test_metadata_that_cannot_travel_is_the_transports_fault() -> None:
    class Unpicklable(InlineTransport):
        def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
            metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
            metadata.lock = threading.Lock()  # type: ignore[attr-defined]
            return metadata

    world = world_of(Unpicklable)
    source, destination = world.actors(2)
    assert isinstance(destination.consume(source.produce(PAYLOAD)).error(), ProtocolError)
    world.close()


def test_actor_handles_identify_and_say_that_there_is_no_ray(world: World) -> None:
    source, destination = world.actors(2)
    seen: list[Any] = []

    class Looks(InlineTransport):
        def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
            seen.extend([src_actor, dst_actor, backend])
            return super().get_communicator_metadata(src_actor, dst_actor, backend)

    other = world_of(Looks)
    source, destination = other.actors(2)
    destination.consume(source.produce(PAYLOAD)).result()
    src, dst, backend = seen
    assert src._actor_id.hex() != dst._actor_id.hex() and backend == "T"
    with pytest.raises(NeedsRayError):
        _ = src.__ray_call__
    other.close()


def test_lanes_are_those_of_ray(world: World) -> None:
    source, destination = world.actors(2)
    ref = source.produce(PAYLOAD)
    destination.consume(ref).result()
    destination.get(ref).result()
    assert calls(world, "extract") == [("actor1", Lane.MAIN.value)]
    assert calls(world, "recv") == [("actor2", Lane.SYSTEM.value)]
    assert calls(world, "fetch") == calls(world, "wait") == [("actor2", Lane.MAIN.value)]
    owners = [process for process, _ in calls(world, "get_communicator_metadata")]
    assert owners == ["driver", "actor2"], "the owner's for a task argument, the getter's own for a get"


def test_no_warning_where_nothing_is_shared(world: World) -> None:
    source, destination = world.actors(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        destination.consume(source.produce(PAYLOAD)).result()
