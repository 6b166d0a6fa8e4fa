"""The CUDA IPC transport between processes."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import gpu_recipes as recipes
import pytest
import torch
from gpu_actors import (
    Actor,
    Inside,
    allocated,
    collect,
    compare,
    differences,
    drop,
    extract,
    hiring,
    in_use,
    receive,
    settled,
)
from ray.experimental import CommunicatorMetadata

from reference_transports.cuda_ipc import CudaIpcTransport

pytestmark = pytest.mark.timeout(300)
TRANSPORT = "reference_transports.cuda_ipc:CudaIpcTransport"
COMM = CommunicatorMetadata()
MIB = 1 << 20
BIG = 64 * MIB


@pytest.fixture
def hire() -> Iterator[Callable[..., Actor]]:
    yield from hiring(TRANSPORT)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Actor, Actor]]:
    """For those who leave both alive: an actor takes seconds to start."""
    for hire in hiring(TRANSPORT):
        yield hire(), hire()


def move(source: Actor, destination: Actor, recipe: Any, buffers: Any = None) -> Any:
    """A whole life of an object."""
    metadata = source.do(extract, "object", recipe)
    try:
        destination.do(receive, "object", metadata, COMM, buffers)
        assert destination.do(differences, "object", recipe) == []
        destination.do(drop, "object")
    finally:
        source.do(collect, "object", metadata)
    return metadata


def fill(inside: Inside, obj_id: str, value: int) -> None:
    inside.received[obj_id][0].fill_(value)
    torch.cuda.synchronize()


def first(inside: Inside, obj_id: str) -> int:
    return int(inside.objects[obj_id][0].view(-1)[0])


def overwrite(inside: Inside, size: int) -> None:
    """Take whatever memory of this size is free, and write to it."""
    for _ in range(4):
        inside.objects.setdefault("noise", []).append(torch.full((size,), 255, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()


def begin_fetch(inside: Inside, obj_id: str, metadata: Any) -> None:
    inside.requests[obj_id] = inside.transport.fetch_multiple_tensors(obj_id, metadata, COMM)


def end_fetch(inside: Inside, obj_id: str, timeout: float) -> None:
    inside.received[obj_id] = inside.transport.wait_fetch_complete(inside.requests[obj_id], timeout)


def forward(inside: Inside, obj_id: str) -> Any:
    """Send on what was received."""
    inside.objects[obj_id] = inside.received[obj_id]
    return inside.transport.extract_tensor_transport_metadata(obj_id, inside.objects[obj_id])


def receive_often(inside: Inside, metadata: Any) -> list[str]:
    """Receive an object on several threads at once, again and again, and let go of it each time; what went wrong."""
    wrong: list[str] = []

    def often() -> None:
        for _ in range(300):
            try:
                inside.transport.recv_multiple_tensors("object", metadata, COMM)
            except Exception as error:
                return wrong.append(str(error))

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_everything_arrives_as_it_is(pair: tuple[Actor, Actor]) -> None:
    for recipe in (recipes.everything, recipes.empty, recipes.nothing, partial(recipes.many, 3000)):
        move(*pair, recipe)


def test_nothing_is_copied_and_views_are_views(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    before = destination.do(allocated)
    metadata = source.do(extract, "big", partial(recipes.numbers, BIG))
    destination.do(receive, "big", metadata, COMM)
    assert destination.do(allocated) == before
    destination.do(fill, "big", 9)
    assert source.do(first, "big") == 9
    destination.do(drop, "big")
    source.do(collect, "big", metadata)


def test_many_tensors_of_an_allocation_have_one_handle(pair: tuple[Actor, Actor]) -> None:
    metadata = move(*pair, partial(recipes.split, 1000))
    assert (len(metadata.allocations), len(metadata.storages)) == (1, 3 * 8)
    assert len(pickle.dumps(metadata)) < 100_000
    assert len(move(*pair, partial(recipes.many, 1000)).allocations) < 10


def test_target_buffers_are_filled(pair: tuple[Actor, Actor]) -> None:
    move(*pair, partial(recipes.numbers, BIG), partial(recipes.zeros, BIG))
    with pytest.raises(ValueError, match="target buffer"):
        move(*pair, partial(recipes.numbers, BIG), partial(recipes.zeros, 3))


def test_a_receiver_has_the_tensors_when_the_source_has_made_them(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    metadata = source.do(extract, "late", partial(recipes.late, MIB))
    destination.do(begin_fetch, "late", metadata)
    with pytest.raises(TimeoutError):
        destination.do(end_fetch, "late", 0)
    with pytest.raises(TimeoutError):
        destination.do(end_fetch, "late", 0.05)
    destination.do(end_fetch, "late", -1)
    assert destination.do(differences, "late", partial(recipes.numbers, MIB)) == []
    destination.do(drop, "late")
    source.do(collect, "late", metadata)


@pytest.mark.parametrize("how", ["drops it", "is killed"])
def test_memory_is_kept_for_a_receiver_until_it(
    pair: tuple[Actor, Actor], hire: Callable[..., Actor], how: str
) -> None:
    source, destination = pair
    if how == "is killed":
        destination = hire()
    recipe = partial(recipes.numbers, BIG)
    source.do(allocated)
    before = source.do(allocated)
    metadata = source.do(extract, "kept", recipe)
    destination.do(receive, "kept", metadata, COMM)
    source.do(collect, "kept", metadata)
    assert source.do(allocated) - before >= BIG
    source.do(overwrite, BIG)
    assert destination.do(differences, "kept", recipe) == []
    with pytest.raises(RuntimeError, match="is gone"):
        destination.do(receive, "kept", metadata, COMM)
    source.do(release_noise)
    if how == "is killed":
        destination.end()
    else:
        destination.do(drop, "kept")
    assert settled(lambda: source.do(allocated) == before)


def release_noise(inside: Inside) -> None:
    inside.objects.pop("noise", None)


def test_what_nobody_received_is_gone_at_once(pair: tuple[Actor, Actor]) -> None:
    source, _ = pair
    before = source.do(allocated)
    metadata = source.do(extract, "never", partial(recipes.numbers, BIG))
    source.do(collect, "never", metadata)
    assert source.do(allocated) == before


def test_a_dead_source_leaves_what_was_received(pair: tuple[Actor, Actor], hire: Callable[..., Actor]) -> None:
    source, (destination, _) = hire(), pair
    recipe = partial(recipes.numbers, BIG)
    metadata = source.do(extract, "object", recipe)
    destination.do(receive, "object", metadata, COMM)
    source.end()
    assert destination.do(differences, "object", recipe) == []
    with pytest.raises(RuntimeError, match="is gone"):
        destination.do(receive, "again", metadata, COMM)
    assert destination.do(differences, "object", recipe) == []


def test_what_was_received_can_be_sent_on(pair: tuple[Actor, Actor], hire: Callable[..., Actor]) -> None:
    source, middle = pair
    last = hire()
    metadata = source.do(extract, "object", recipes.everything)
    middle.do(receive, "object", metadata, COMM)
    last.do(receive, "object", middle.do(forward, "object"), COMM)
    middle.do(drop, "object")
    source.do(collect, "object", metadata)
    assert last.do(differences, "object", recipes.everything) == []
    last.do(drop, "object")
    middle.do(collect, "object", None)


def test_expandable_segments(pair: tuple[Actor, Actor], hire: Callable[..., Actor]) -> None:
    source, destination = hire(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), pair[1]
    move(source, destination, recipes.everything)
    before = source.do(in_use)
    for _ in range(3):
        move(source, destination, partial(recipes.numbers, BIG))
    assert settled(lambda: source.do(in_use) <= before + 2 * BIG)


@pytest.mark.parametrize("gpus", ["1", "1,0"])
def test_from_another_gpu(pair: tuple[Actor, Actor], hire: Callable[..., Actor], gpus: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    source, destination = pair[0], hire(gpus)
    for _ in range(2):
        move(source, destination, recipes.everything)
        move(source, destination, partial(recipes.numbers, BIG), partial(recipes.zeros, BIG))
        metadata = source.do(extract, "late", partial(recipes.late, BIG))
        destination.do(receive, "late", metadata, COMM)
        assert destination.do(differences, "late", partial(recipes.numbers, BIG)) == []
        destination.do(drop, "late")
        source.do(collect, "late", metadata)


@pytest.mark.parametrize("gpus", ["0", "1"])
def test_threads_map_and_unmap_the_same_memory(
    pair: tuple[Actor, Actor], hire: Callable[..., Actor], gpus: str
) -> None:
    if torch.cuda.device_count() <= int(gpus):
        pytest.skip("needs two GPUs")
    source, destination = pair[0], hire(gpus)
    metadata = source.do(extract, "object", partial(recipes.numbers, MIB))
    assert destination.do(receive_often, metadata) == []
    source.do(collect, "object", metadata)


def test_memory_is_flat(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair

    def cycles(count: int) -> None:
        for _ in range(count):
            move(source, destination, partial(recipes.many, 20))

    cycles(20)
    before = source.do(in_use), source.do(descriptors), destination.do(descriptors), source.do(allocated)
    cycles(200)
    assert settled(lambda: source.do(allocated) == before[-1])
    assert (source.do(in_use), source.do(descriptors), destination.do(descriptors)) == before[:-1]


def descriptors(inside: Inside) -> int:
    return len(os.listdir("/proc/self/fd"))


def test_two_in_one_process() -> None:
    source, destination = CudaIpcTransport(), CudaIpcTransport()
    tensors = recipes.everything()
    metadata = pickle.loads(pickle.dumps(source.extract_tensor_transport_metadata("object", tensors)))
    received = destination.recv_multiple_tensors("object", metadata, COMM)
    assert compare(received, tensors) == []
    source.garbage_collect("object", metadata, tensors)
    with pytest.raises(RuntimeError, match="is gone"):
        destination.recv_multiple_tensors("object", metadata, COMM)
    copies = [tensor.detach().clone() for tensor in tensors]
    del tensors
    gc.collect()
    assert compare(received, copies) == []


def test_garbled_metadata_are_an_error() -> None:
    source, tensors = CudaIpcTransport(), recipes.numbers(1000)
    good = source.extract_tensor_transport_metadata("object", tensors)
    for bad in (
        replace(good, allocations=[b"\x01" * 64]),
        replace(good, tensor_meta=[((2000,), torch.uint8)]),
        replace(good, host="elsewhere"),
        replace(good, loan=(1, 0, (0, 0))),
    ):
        with pytest.raises(ValueError, match="garbled"):
            CudaIpcTransport().recv_multiple_tensors("object", bad, COMM)
    with pytest.raises(ValueError, match="another host"):
        CudaIpcTransport().recv_multiple_tensors("object", replace(good, host="elsewhere").sealed(), COMM)
    with pytest.raises(ValueError, match="one GPU"):
        source.extract_tensor_transport_metadata("mixed", [*tensors, torch.ones(1)])
