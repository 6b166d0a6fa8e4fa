"""The NCCL transport between processes, on two GPUs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import gpu_recipes as recipes
import pytest
import torch
from gpu_actors import (
    ERROR,
    SOON,
    SYSTEM,
    Actor,
    Inside,
    abort,
    collect,
    differences,
    drop,
    extract,
    hiring,
    in_use,
    receive,
    send,
    settled,
)

from reference_transports._nccl_pair import PairGroup
from reference_transports._pairs import TransferMetadata

pytestmark = pytest.mark.timeout(300)
TRANSPORT = "reference_transports.nccl:NcclTransport"
MIB = 1 << 20
BIG = 256 * MIB
PROMPTLY = 5.0
"""Seconds after an abort."""


@pytest.fixture
def hire() -> Iterator[Callable[..., Actor]]:
    yield from hiring(TRANSPORT)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Actor, Actor]]:
    """For those who leave both alive: an actor takes seconds to start."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for hire in hiring(TRANSPORT):
        yield hire("0"), hire("1")


def begin(
    source: Actor, destination: Actor, metadata: Any, obj_id: str, buffers: Any = None
) -> tuple[TransferMetadata, Future[Any], Future[Any]]:
    """Start both halves of a transfer, as Ray does."""
    transfer = TransferMetadata(f"{source.pid}-{destination.pid}")
    sent = source.begin(send, obj_id, metadata, transfer)
    return transfer, sent, destination.begin(receive, obj_id, metadata, transfer, buffers)


def move(source: Actor, destination: Actor, recipe: Any, buffers: Any = None) -> None:
    """A whole life of an object."""
    metadata = source.do(extract, "moved", recipe)
    _, *halves = begin(source, destination, metadata, "moved", buffers)
    for half in halves:
        half.result(SOON)
    assert destination.do(differences, "moved", recipe) == []
    destination.do(drop, "moved")
    source.do(collect, "moved", metadata)


def waiting_in_groups(inside: Inside) -> int:
    """How many sends and receives wait in a group; and not for one."""
    with inside.transport._changed:
        return sum(isinstance(place, PairGroup) for place in inside.transport._under_way.values())


def test_everything_arrives_as_it_is(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    for recipe in (recipes.everything, recipes.empty, recipes.nothing, partial(recipes.many, 10_000)):
        move(source, destination, recipe)
        move(destination, source, recipe)


def test_target_buffers_are_filled(pair: tuple[Actor, Actor]) -> None:
    move(*pair, partial(recipes.numbers, BIG), partial(recipes.zeros, BIG))


def test_what_is_sent_is_what_the_source_has_made(pair: tuple[Actor, Actor]) -> None:
    source, destination = pair
    metadata = source.do(extract, "late", partial(recipes.late, BIG))
    _, *halves = begin(source, destination, metadata, "late")
    for half in halves:
        half.result(SOON)
    assert destination.do(differences, "late", partial(recipes.numbers, BIG)) == []


def test_both_directions_at_once(pair: tuple[Actor, Actor]) -> None:
    """Each actor sends on one lane and receives on another."""
    recipe = partial(recipes.numbers, BIG)
    metadata = [actor.do(extract, "object", recipe) for actor in pair]
    for _ in range(5):
        halves = []
        for source, destination, described in ((*pair, metadata[0]), (pair[1], pair[0], metadata[1])):
            transfer = TransferMetadata(f"{source.pid}-{destination.pid}")
            halves.append(source.begin(send, "object", described, transfer, lane=SYSTEM))
            halves.append(destination.begin(receive, "object", described, transfer, lane="main"))
        for half in halves:
            half.result(SOON)
    for actor in pair:
        assert actor.do(differences, "object", recipe) == []


@pytest.mark.parametrize("half", ["send", "receive"])
def test_an_abort_ends_a_half_that_waits_for_the_other(pair: tuple[Actor, Actor], half: str) -> None:
    """Before there is a communicator, and when there is one."""
    source, destination = pair
    side = source if half == "send" else destination
    for _ in range(2):
        metadata = source.do(extract, "object", partial(recipes.numbers, MIB))
        transfer = TransferMetadata(f"{source.pid}-{destination.pid}")
        blocked = side.begin(send if half == "send" else receive, "object", metadata, transfer)
        with pytest.raises(TimeoutError):
            blocked.result(1)
        side.do(abort, "object", transfer, lane=ERROR)
        with pytest.raises(ConnectionAbortedError, match="aborted"):
            blocked.result(PROMPTLY)
        move(source, destination, partial(recipes.numbers, MIB))


@pytest.mark.parametrize("stopped", ["source", "destination"])
def test_an_abort_ends_a_transfer_whose_other_side_is_stopped(pair: tuple[Actor, Actor], stopped: str) -> None:
    """On this side at once, on the other when it goes on; and the next transfer is exact."""
    source, destination = pair
    recipe = partial(recipes.numbers, BIG)
    move(source, destination, recipe)
    still, other = (source, destination) if stopped == "source" else (destination, source)
    metadata = source.do(extract, "object", recipe)
    os.kill(still.pid, signal.SIGSTOP)
    transfer, sent, received = begin(source, destination, metadata, "object")
    live, late = (received, sent) if stopped == "source" else (sent, received)
    assert settled(lambda: other.do(waiting_in_groups, lane="main") == 1)
    began = time.monotonic()
    other.do(abort, "object", transfer, lane=ERROR)
    assert isinstance(live.exception(PROMPTLY), ConnectionAbortedError)
    assert time.monotonic() - began < PROMPTLY
    stopped_side = still.begin(abort, "object", transfer, lane=ERROR)
    os.kill(still.pid, signal.SIGCONT)
    stopped_side.result(PROMPTLY)
    assert isinstance(late.exception(PROMPTLY), ConnectionAbortedError)
    move(source, destination, recipe)


def test_a_transfer_ends_when_the_other_side_dies(pair: tuple[Actor, Actor], hire: Callable[..., Actor]) -> None:
    source, destination = hire("0"), hire("1")
    recipe = partial(recipes.numbers, BIG)
    move(source, destination, recipe)
    metadata = source.do(extract, "object", recipe)
    destination.end()
    transfer = TransferMetadata(f"{source.pid}-{destination.pid}")
    blocked = source.begin(send, "object", metadata, transfer)
    source.do(abort, "object", transfer, lane=ERROR)
    assert isinstance(blocked.exception(PROMPTLY), ConnectionAbortedError)

    another = pair[1]
    move(source, another, recipe)
    os.kill(source.pid, signal.SIGSTOP)
    blocked = another.begin(receive, "object", metadata, TransferMetadata(f"{source.pid}-{another.pid}"))
    source.end()
    assert isinstance(blocked.exception(PROMPTLY), ConnectionError)
    move(pair[0], another, recipe)


def test_both_on_one_gpu_is_an_error_on_both_sides(hire: Callable[..., Actor]) -> None:
    source, destination = hire("0"), hire("0")
    metadata = source.do(extract, "object", partial(recipes.numbers, MIB))
    _, *halves = begin(source, destination, metadata, "object")
    for half in halves:
        with pytest.raises(ValueError, match="both on GPU"):
            half.result(SOON)


def test_memory_is_flat(pair: tuple[Actor, Actor]) -> None:
    """Over transfers and over communicators."""
    source, destination = pair

    def cycle() -> None:
        """A transfer, and an abort that costs a communicator."""
        move(source, destination, partial(recipes.many, 100))
        transfer = TransferMetadata(f"{source.pid}-{destination.pid}")
        metadata = source.do(extract, "object", partial(recipes.numbers, MIB))
        blocked = source.begin(send, "object", metadata, transfer)
        assert settled(lambda: source.do(waiting_in_groups, lane="main") == 1)
        source.do(abort, "object", transfer, lane=ERROR)
        assert isinstance(blocked.exception(PROMPTLY), ConnectionAbortedError)
        source.do(collect, "object", metadata)

    for _ in range(3):
        cycle()
    before = [(actor.do(in_use), actor.do(threads)) for actor in pair]
    for _ in range(10):
        cycle()
    assert [(actor.do(in_use), actor.do(threads)) for actor in pair] == before


def test_the_dead_keep_no_memory(pair: tuple[Actor, Actor], hire: Callable[..., Actor]) -> None:
    """Their communicators go soon after the next object is freed, in either direction.

    The first of the dead may still hold theirs when the count begins; three more hold three times as much.
    """
    survivor, recipe = pair[0], partial(recipes.numbers, MIB)

    def life_and_death() -> None:
        other = hire("1")
        move(survivor, other, recipe)
        move(other, survivor, recipe)
        other.end()

    def held() -> tuple[int, int]:
        metadata = survivor.do(extract, "freed", recipe)
        survivor.do(collect, "freed", metadata)
        return survivor.do(in_use), survivor.do(threads)

    life_and_death()
    before = held()
    for _ in range(3):
        life_and_death()
    assert settled(lambda: all(now <= then for now, then in zip(held(), before, strict=True))), (
        f"{held()} after three more deaths, {before} before"
    )


def threads(inside: Inside) -> int:
    return len(os.listdir("/proc/self/task"))
