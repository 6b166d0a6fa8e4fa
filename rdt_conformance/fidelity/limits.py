"""What Ray itself does not do right, by name, each with a program that shows it.

Found by running Ray 2.60; the reference does the right thing. Programs of `generate` keep clear of all of them. The two
must still differ on the installed version, else the limit is none any more and its programs belong to the others.

Two that are known are not here. That an actor's very first put can find its transport unregistered is a race, which no
program shows for certain; every actor of a world has had a task before it puts. That actors which Ray itself restarts,
and objects that it would have to make again, are not supported has no verb here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rdt_conformance.engines.reference.worker import AS_IN_RAY, Settings
from rdt_conformance.fidelity.generate import A_MOMENT
from rdt_conformance.fidelity.programs import Program, Traits
from rdt_conformance.fidelity.steps import (
    DRIVER,
    Build,
    Consume,
    Drop,
    Fail,
    Fit,
    Get,
    Kept,
    MakeBuffers,
    Mishap,
    Return,
    Shape,
    Step,
    Together,
    Trouble,
    Unblocked,
    WaitFreed,
)

GIVEN_UP = 2.0
"""Seconds after which Ray takes a transfer for lost, in programs that wait for that."""


def _always(_: Traits) -> bool:
    return True


def _one_sided(traits: Traits) -> bool:
    return traits.one_sided


def _blocks(traits: Traits) -> bool:
    return not traits.one_sided and traits.can_abort


def _unfit(traits: Traits) -> bool:
    return traits.one_sided and not traits.fits_buffers


@dataclass(frozen=True)
class Limit:
    """One thing that Ray does not do right."""

    name: str
    what_ray_does: str
    what_the_reference_does: str
    steps: tuple[Step, ...]
    applies: Callable[[Traits], bool] = _always
    issue: str = ""
    """Ray's public issue about it, if one is known."""
    gives_up: bool = False
    """Ray waits until it takes the transfer for lost: the program is for a world where that is soon."""

    @property
    def program(self) -> Program:
        """What shows it."""
        return Program(self.steps)

    @property
    def settings(self) -> Settings:
        """Of the world to play the program in."""
        return Settings(fetch_fail_timeout=GIVEN_UP) if self.gives_up else AS_IN_RAY


_X1 = (Build("v1", "a", Shape.LIST), Return("x1", "a", "v1"))

LIMITS = (
    Limit(
        "keyword arguments",
        "does not transfer an object that is passed by keyword: the task waits until the timeout and fails",
        "transfers it",
        (*_X1, Consume("v2", "b", (), named=("x1",))),
        gives_up=True,
    ),
    Limit(
        "communicator of a late object",
        "swallows what get_communicator_metadata raises if the object came to exist after it had been passed on: the "
        "task waits until the timeout",
        "raises it in the task",
        (
            Build("v1", "a", Shape.LIST),
            Trouble(DRIVER, "get_communicator_metadata"),
            Together((Return("x1", "a", "v1"), Consume("v2", "b", ("x1",))), busy="a"),
        ),
        gives_up=True,
    ),
    Limit(
        "sender of a failed receive",
        "takes a receive that has failed for done and lets the sender wait until the timeout",
        "aborts both at once",
        (*_X1, Trouble("b", "recv_multiple_tensors"), Consume("v2", "b", ("x1",)), Unblocked("a", GIVEN_UP / 4)),
        applies=_blocks,
        gives_up=True,
    ),
    Limit(
        "refused device",
        "never calls garbage_collect for an object whose device it refuses after extract_tensor_transport_metadata",
        "calls it at once",
        (
            Build("v1", "a", Shape.LIST),
            Trouble("a", "extract_tensor_transport_metadata", Mishap.ODD_DEVICE),
            Return("x1", "a", "v1"),
            Consume("v2", "b", ("x1",)),
        ),
    ),
    Limit(
        "failed extract",
        "keeps the tensors of an object that extract_tensor_transport_metadata raised for, for ever",
        "lets go of them",
        (
            Build("v1", "a", Shape.LIST),
            Trouble("a", "extract_tensor_transport_metadata"),
            Return("x1", "a", "v1"),
            Consume("v2", "b", ("x1",)),
            Drop("x1"),
            WaitFreed("a", "v1", A_MOMENT),
        ),
    ),
    Limit(
        "late synchronous fetch",
        "raises GetTimeoutError although the data are there, if fetch_multiple_tensors took longer than the timeout",
        "gives the data",
        (*_X1, Trouble(DRIVER, "fetch_multiple_tensors", Mishap.SLOW), Get("v2", DRIVER, ("x1",), timeout=0.2)),
        applies=_one_sided,
    ),
    Limit(
        "borrowers",
        "never forgets the metadata of an object that a process has borrowed",
        "forgets them with the last reference",
        (*_X1, Get("v2", "b", ("x1",)), Drop("x1"), Kept("b", "x1")),
        applies=_one_sided,
        issue="ray-project/ray#61096",
    ),
    Limit(
        "lending what was never made",
        "cannot pickle a reference to an object whose task has failed, or has not ended yet",
        "raises the task's error where the object is wanted",
        (Fail("x1", "a"), Get("v2", "b", ("x1",))),
    ),
    Limit(
        "objects without tensors",
        "sends an object without tensors to a task that does not wait for it, and keeps what has arrived for ever",
        "lets go of what has arrived when the task has begun",
        (Build("v1", "a", Shape.NONE), Return("x1", "a", "v1"), Consume("v2", "b", ("x1",)), Kept("b", "x1")),
    ),
    Limit(
        "target buffers of numpy",
        "cannot check target buffers that are no torch tensors",
        "checks them",
        (
            *_X1,
            MakeBuffers("v2", DRIVER, "x1", Fit.GOOD),
            Get("v3", DRIVER, ("x1",), buffers="v2"),
        ),
        applies=_unfit,
    ),
)


def limits_for(traits: Traits) -> list[Limit]:
    """Those that a transport can run into; the ones that need a world of their own last."""
    return sorted((limit for limit in LIMITS if limit.applies(traits)), key=lambda limit: limit.gives_up)
