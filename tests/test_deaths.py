"""Processes that end by themselves: whose fault it is said to be, and that nobody else suffers for it."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import ray
import torch
from check_run import bench_of, run_check

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.bench import Bench
from rdt_conformance.engines.cluster.processes import ProcessHost
from rdt_conformance.engines.engines import Engines
from rdt_conformance.engines.reference import thread_errors
from rdt_conformance.report.story import render
from reference_transports.inline import InlineTransport

_DEATH = 60.0


@check("L1", sends=False)
def one_object_arrives(case: Case) -> None:
    source, destination = case.actors(2)
    case.arrived(case.ok(destination.consume(source.produce(case.payload()))), case.payload())


@check("L3", sends=False)
def another_object_arrives(case: Case) -> None:
    source, destination = case.actors(2)
    case.arrived(case.ok(destination.consume(source.produce(case.payload()))), case.payload())


class Crashes(InlineTransport):
    """Reads where there is no memory, in one of its methods."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[torch.Tensor]) -> Any:
        if sum(tensor.nbytes for tensor in rdt_object) >= 256:
            ctypes.string_at(0)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


class CrashesLater(InlineTransport):
    """The same, where an object is freed."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[torch.Tensor]) -> None:
        if sum(tensor.nbytes for tensor in tensors) >= 256:
            ctypes.string_at(0)


class EndsItsProcess(InlineTransport):
    """Ends without a word where an object that is not small is freed."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[torch.Tensor]) -> None:
        if sum(tensor.nbytes for tensor in tensors) >= 256:
            os._exit(3)


class LosesItsThread(InlineTransport):
    """Has a thread that ends by an error, and can then do nothing."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[torch.Tensor]) -> Any:
        if sum(tensor.nbytes for tensor in rdt_object) >= 256:
            thread = threading.Thread(target=_lose_the_way, name="pump")
            thread.start()
            thread.join()
            raise ConnectionError("the pump has stopped")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


def _lose_the_way() -> None:
    raise ValueError("no way from here")


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    engines = Engines()
    yield engines
    engines.stop()


def _bench(engines: Engines, transport: type, engine: str = "cluster") -> Bench:
    return Bench(bench_of(transport, torch.Tensor).target, engine, engines.start, "quick", seed=1)


def _actor(bench: Bench) -> tuple[Any, psutil.Process]:
    """Ray's handle and the process of an actor of the world that the next example is to have."""
    world = bench.acquire()
    host = world.host
    assert isinstance(host, ProcessHost)
    process = host._process("actor1")
    assert process is not None
    bench.release(world, again=True)
    return host.handle("actor1"), process


def test_a_process_that_ends_while_objects_are_freed_is_a_failure(engines: Engines) -> None:
    bench = _bench(engines, EndsItsProcess)
    (failure,) = run_check(bench, one_object_arrives).failures
    bench.close()
    assert failure.clause == "L1"
    assert "ended while what the example had made was freed, and nobody had ended it" in failure.happened


@pytest.mark.parametrize(
    ("transport", "method", "when"),
    [
        (Crashes, "extract_tensor_transport_metadata", "ActorDiedError"),
        (CrashesLater, "garbage_collect", "ended while what the example had made was freed, and nobody had ended it"),
    ],
)
def test_a_process_that_crashes_is_a_failure_and_where_it_did_is_told(
    transport: type, method: str, when: str, engines: Engines
) -> None:
    bench = _bench(engines, transport)
    (failure,) = run_check(bench, one_object_arrives).failures
    bench.close()
    assert failure.clause == "L1" and when in failure.happened
    assert failure.crash.splitlines()[0] == "actor1:"
    assert "Segmentation fault" in failure.crash and f"in {method}" in failure.crash
    assert "Last words of what ended by itself" in render(failure)


@pytest.mark.parametrize("engine", ["cluster", "ray"])
def test_what_ended_a_thread_of_an_actor_stands_beside_the_failure(engine: str, engines: Engines) -> None:
    bench = _bench(engines, LosesItsThread, engine)
    (failure,) = run_check(bench, one_object_arrives).failures
    bench.close()
    assert failure.clause == "L1" and "the pump has stopped" in failure.happened
    first, *lines = failure.crash.splitlines()
    assert (first, lines[-1]) == ("actor1, thread 'pump':", "ValueError: no way from here")
    assert any("in _lose_the_way" in line for line in lines)
    assert not thread_errors._listening, "when the world is closed"


def test_a_late_death_is_held_against_the_check_that_was_before_unless_ray_did_it(engines: Engines) -> None:
    bench = _bench(engines, InlineTransport)
    assert run_check(bench, one_object_arrives).failures == ()
    _, process = _actor(bench)
    process.kill()
    process.wait(_DEATH)
    (failure,) = run_check(bench, another_object_arrives).failures
    assert failure.clause == "L1"
    assert failure.happened.startswith("the process of actor1 had ended by the time that the next example began")

    assert run_check(bench, one_object_arrives).failures == ()
    actor, process = _actor(bench)
    ray.kill(actor)
    process.wait(_DEATH)
    assert run_check(bench, another_object_arrives).failures == ()
    bench.close()


def test_an_engine_that_ends_lets_go_of_the_drivers_transport(engines: Engines) -> None:
    bench = _bench(engines, InlineTransport)
    assert run_check(bench, one_object_arrives).failures == ()
    engine: Any = bench._engine
    (transport,) = map(weakref.ref, engine._registry.instances())
    assert transport() is not None
    bench.close()
    gc.collect()
    assert transport() is None
