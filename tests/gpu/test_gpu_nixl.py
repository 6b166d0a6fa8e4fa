"""The NIXL transport between processes: from GPU to GPU, the same or another, and to and from the host's memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

import gpu_recipes as recipes
import pytest
import torch
from gpu_actors import Actor, Inside, collect, compare, drop, extract, hiring, in_use, receive
from ray.experimental import CommunicatorMetadata

from reference_transports.nixl.transfer import Transfer

pytest.importorskip("nixl")
pytestmark = pytest.mark.timeout(300)
TRANSPORT = "reference_transports.nixl:NixlTransport"
COMM = CommunicatorMetadata()
MIB = 1 << 20
BIG = 64 * MIB


@pytest.fixture(scope="module", params=["same GPU", "another GPU"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Actor, Actor]]:
    if request.param == "another GPU" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for hire in hiring(TRANSPORT):
        yield hire("0"), hire("1" if request.param == "another GPU" else "0")


def move(source: Actor, destination: Actor, recipe: Any, buffers: Any = None) -> None:
    """A whole life of an object."""
    metadata = source.do(extract, "object", recipe)
    try:
        destination.do(receive, "object", metadata, COMM, buffers)
        assert destination.do(wrong_bytes, "object", recipe) == []
        destination.do(drop, "object")
    finally:
        source.do(collect, "object", metadata)


def wrong_bytes(inside: Inside, obj_id: str, recipe: Any) -> list[str]:
    """What is wrong with what was received, on whatever device it is."""
    received = inside.received[obj_id]
    return compare(received, [want.to(got.device) for got, want in zip(received, recipe(), strict=True)])


def test_everything_arrives_as_it_is(pair: tuple[Actor, Actor]) -> None:
    for recipe in (recipes.everything, recipes.empty, recipes.nothing, partial(recipes.many, 3000)):
        move(*pair, recipe)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_target_buffers_of_either_device(pair: tuple[Actor, Actor], device: str) -> None:
    for recipe in (recipes.everything, partial(recipes.numbers, BIG)):
        move(*pair, recipe, partial(recipes.like, recipe, device))


def test_from_the_host_to_a_gpu(pair: tuple[Actor, Actor]) -> None:
    recipe = partial(recipes.like, recipes.everything, "cpu")
    move(*pair, recipe, partial(recipes.like, recipe, "cuda"))


def test_what_arrives_is_what_the_source_has_made(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    metadata = source.do(extract, "late", partial(recipes.late, BIG))
    destination.do(receive, "late", metadata, COMM)
    assert destination.do(wrong_bytes, "late", partial(recipes.numbers, BIG)) == []
    destination.do(drop, "late")
    source.do(collect, "late", metadata)


def receive_in_late_memory(inside: Inside, obj_id: str, metadata: Any, size: int) -> None:
    """Receive something small, where the GPU has yet to write what was there before, and has been given up."""
    look = Transfer._look

    def looking(self: Transfer, agent: Any, peer: Any, source: Any, cell: Any) -> Generator[bool, None, None]:
        yield from look(self, agent, peer, source, cell)
        Transfer._look = look
        torch.cuda._sleep(2_000_000_000)
        torch.zeros(size, dtype=torch.uint8, device="cuda")

    Transfer._look = looking
    receive(inside, obj_id, metadata, COMM)


def test_small_tensors_do_not_land_in_memory_that_is_still_to_be_written(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    recipe = partial(recipes.numbers, 500)
    metadata = source.do(extract, "small", recipe)
    destination.do(receive_in_late_memory, "small", metadata, 500)
    assert destination.do(wrong_bytes, "small", recipe) == []
    destination.do(drop, "small")
    source.do(collect, "small", metadata)


def test_memory_is_flat(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair

    def cycles(count: int) -> None:
        for _ in range(count):
            for recipe in (partial(recipes.many, 20), partial(recipes.numbers, MIB)):
                move(source, destination, recipe)

    cycles(20)
    before = source.do(in_use), destination.do(in_use)
    cycles(100)
    assert (source.do(in_use), destination.do(in_use)) == before
