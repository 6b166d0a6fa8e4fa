"""The CUDA IPC transport between processes."""

from __future__ import annotations

import gc
import os
import pickle
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
COMM = CommunicatorMetadata()
MIB = 1 << 20
BIG = 64 * MIB


@pytest.fixture
def hire() -> Iterator[Callable[..., Actor]]:
    yield from hiring("reference_transports.cuda_ipc:CudaIpcTransport")


@pytest.fixture
def pair(hire: Callable[..., Actor]) -> tuple[Actor, Actor]:
    return hire(), hire()


def move(source: Actor, destination: Actor, recipe: Any, buffers: Any = None, obj_id: str = "object") -> Any:
    metadata = source.do(extract, obj_id, recipe)
    destination.do(receive, obj_id, metadata, COMM, buffers)
    assert destination.do(differences, obj_id, recipe) == []
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


def test_everything_arrives_as_it_is(pair: tuple[Actor, Actor]) -> None:
    for recipe in (recipes.everything, recipes.empty, recipes.nothing, partial(recipes.many, 3000)):
        move(*pair, recipe)


def test_nothing_is_copied_and_views_are_views(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    move(source, destination, partial(recipes.numbers, 1000), obj_id="small")
    before = destination.do(allocated)
    metadata = source.do(extract, "big", partial(recipes.numbers, BIG))
    destination.do(receive, "big", metadata, COMM)
    assert destination.do(allocated) == before
    destination.do(fill, "big", 9)
    assert source.do(first, "big") == 9


def test_many_tensors_of_an_allocation_have_one_handle(pair: tuple[Actor, Actor]) -> None:
    metadata = move(*pair, partial(recipes.split, 1000))
    assert len(metadata.allocations) == len(metadata.storages) == 1
    assert len(pickle.dumps(metadata)) < 100_000
    assert len(move(*pair, partial(recipes.many, 1000), obj_id="apart").allocations) < 10


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


@pytest.mark.parametrize("how", ["drops it", "is killed"])
def test_memory_is_kept_for_a_receiver_until_it(pair: tuple[Actor, Actor], how: str) -> None:
    source, destination = pair
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


def test_a_dead_source_leaves_what_was_received(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    recipe = partial(recipes.numbers, BIG)
    metadata = move(source, destination, recipe)
    source.end()
    assert destination.do(differences, "object", recipe) == []
    with pytest.raises(RuntimeError, match="is gone"):
        destination.do(receive, "again", metadata, COMM)
    assert destination.do(differences, "object", recipe) == []


def test_what_was_received_can_be_sent_on(pair: tuple[Actor, Actor], hire: Callable[..., Actor]) -> None:
    source, middle = pair
    move(source, middle, recipes.everything)
    last = hire()
    last.do(receive, "object", middle.do(forward, "object"), COMM)
    assert last.do(differences, "object", recipes.everything) == []


def test_expandable_segments(hire: Callable[..., Actor]) -> None:
    source, destination = hire(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), hire()
    move(source, destination, recipes.everything)
    before = source.do(in_use)
    for _ in range(3):
        metadata = move(source, destination, partial(recipes.numbers, BIG))
        source.do(collect, "object", metadata)
        destination.do(drop, "object")
    assert settled(lambda: source.do(in_use) <= before + 2 * BIG)


@pytest.mark.parametrize("gpus", ["1", "1,0", "0,1"])
def test_from_another_gpu(hire: Callable[..., Actor], gpus: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    source, destination = hire("0"), hire(gpus)
    for _ in range(2):
        move(source, destination, recipes.everything)
        move(source, destination, partial(recipes.numbers, BIG), partial(recipes.zeros, BIG))
        metadata = source.do(extract, "late", partial(recipes.late, BIG))
        destination.do(receive, "late", metadata, COMM)
        assert destination.do(differences, "late", partial(recipes.numbers, BIG)) == []


def test_memory_is_flat(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair

    def cycles(count: int) -> None:
        for _ in range(count):
            metadata = source.do(extract, "object", partial(recipes.many, 20))
            destination.do(receive, "object", metadata, COMM)
            source.do(collect, "object", metadata)
            destination.do(drop, "object")

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
