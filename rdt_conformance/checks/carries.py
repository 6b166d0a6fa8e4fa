"""What a transport carries at all, found out once, before the first check that sends something.

A transport may refuse tensors that it cannot carry (M8), and what it carries wrongly is for INTEGRITY to say. Neither
should break the clauses that are about something else, so their payloads are drawn without such tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rdt_conformance import author, interrupts
from rdt_conformance.engines.base import Hung, NoProcess, Pending, Spread, origin_of
from rdt_conformance.engines.reference.errors import ActorDiedError, NeedsRayError, needs_ray
from rdt_conformance.history import describe_error
from rdt_conformance.ray_interface import installed_interface
from rdt_conformance.target import type_name

if TYPE_CHECKING:
    from rdt_conformance.checks.bench import Bench
    from rdt_conformance.engines.world import Held, Process, World
    from rdt_conformance.payloads.base import Payload

T = TypeVar("T")

_ONCE_HUNG = 1.0
"""Seconds for each call of a transport that has hung before."""
_SIZES = (64 << 10, 1 << 20, 8 << 20, 64 << 20)
_COUNTS = (2, 3, 8, 40, 100, 1_000, 10_000)
"""Bytes and tensors of plain objects, up to those of the largest that checks send."""
_BEFORE_SENDING = ("extract_tensor_transport_metadata", "get_communicator_metadata")
"""The calls that can refuse an object. Later ones can only lose it."""


@dataclass(frozen=True)
class Limits:
    """Above which size, and number of tensors, extract refuses plain objects."""

    most_bytes: int = sys.maxsize
    most_tensors: int = sys.maxsize
    too_large: str = ""
    """The error for more bytes, in words."""
    too_many: str = ""
    """The error for more tensors, in words."""

    def refusal(self, nbytes: int, count: int) -> str:
        """Why it does not carry a plain object of so many bytes and tensors, in a sentence; empty if it does."""
        if nbytes > self.most_bytes:
            return f"objects of {nbytes:,} bytes are refused: {self.too_large}"
        return f"objects of {count:,} tensors are refused: {self.too_many}" if count > self.most_tensors else ""


@dataclass(frozen=True)
class Carries:
    """What a transport carries of that which checks send."""

    avoid: frozenset[str] = frozenset()
    """The traits of plain payloads that it does not carry exactly, or not at all; see `PayloadKind.plain_traits`."""
    refusal: str = ""
    """Why checks cannot send anything, in one sentence; empty if they can, or if what they send gets lost later."""
    error: str = ""
    """The exception that this is about, with the author's frames only."""
    nothing: bool = False
    """The transport refuses every plain payload there is, and not only those that most checks send."""
    spread: Spread = Spread.NODES
    """How far apart it lets actors be: where they are further apart than that, it raises an error."""
    further: str = ""
    """That error, in words."""
    driver_refusal: str = ""
    """The error that it raises where the driver shares or receives an object, if it carries between actors. That is for
    L12 to say, and other checks then leave the driver out."""
    refusal_to_pass_on: str = ""
    """The error with which it refuses to send what was received, as torch does with another process's GPU memory."""
    apart_only: str = ""
    """The error that it raises between actors that share a GPU, if it does and carries between others."""
    limits: Limits = Limits()
    """Which plain objects are too large for it."""


def find_out(bench: Bench) -> Carries:
    """Send one small object for each trait by single calls; some milliseconds on the local engine.

    Of a transport that loses the plainest object, or needs Ray, nothing is learnt: the checks will say what happens.
    """
    prober = _Prober(bench)
    try:
        if without := prober.actor_without_transport():
            return Carries(
                refusal=f"no task can return a tensor: actor_has_tensor_transport said that {without} does not have "
                "the transport",
                nothing=True,
            )
        plainest = prober.carries(bench.kind.simple(256))
        further = ""
        if (raised := prober.raised) is not None:
            prober = _closer(prober, bench)
            plainest = prober.spread is not Spread.NODES
            further = _in_words(raised) if plainest else ""
        refused = prober.refused
        if not plainest and refused is None:
            return Carries()
        traits = prober.traits()
        driver_refusal = prober.driver_refusal() if plainest and bench.target.one_sided.value else ""
        refusal_to_pass_on = prober.refusal_to_pass_on() if plainest else ""
        limits = prober.limits() if plainest else Limits()
    except (NeedsRayError, NoProcess):
        return Carries()
    finally:
        prober.close(hand_over=True)
    if refused is None:
        avoid = frozenset(name for name, carried in traits.items() if not carried)
        apart_only = _apart_only(bench, prober.spread) if plainest else ""
        return Carries(
            avoid,
            spread=prober.spread,
            further=further,
            driver_refusal=driver_refusal,
            refusal_to_pass_on=refusal_to_pass_on,
            apart_only=apart_only,
            limits=limits,
        )
    nothing = not any(traits.values())
    what = (
        "not even one plain tensor could be sent"
        if nothing
        else "tensors of bytes, as most checks send them, are refused"
    )
    data_type = bench.target.data_type
    return Carries(
        refusal=f"{what}: {_in_words(refused)} "
        f"(data type {type_name(data_type.value)} [{data_type.learnt}], see --rdt-data-type)",
        error=author.traceback_of(refused),
        nothing=nothing,
    )


def _closer(prober: _Prober, bench: Bench) -> _Prober:
    """Who goes on: one whose actors are closer to each other if that helps, else the same."""
    closer = [Spread.GPUS] if bench.target.nodes > 1 else []
    closer += [Spread.NOTHING] if bench.gpus > 1 else []
    for spread in closer:
        within = _Prober(bench, spread)
        if within.carries(bench.kind.simple(256)):
            prober.close()
            return within
        within.close()
    return prober


def _apart_only(bench: Bench, spread: Spread) -> str:
    """The error with which a transport that carries between GPUs refuses to carry within one; else empty."""
    if spread is Spread.NOTHING or bench.gpus < 2:
        return ""
    prober = _Prober(bench, Spread.NOTHING)
    prober.carries(bench.kind.simple(256))
    raised = prober.raised
    prober.close()
    return "" if raised is None else _in_words(raised)


def _in_words(raised: BaseException) -> str:
    return f"{origin_of(raised)} raised {describe_error(raised)}"


class _Raised(Exception):
    """A call of the transport raised an error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Prober:
    """Sends payloads in a world of its own, which is replaced whenever a payload has got lost in it."""

    def __init__(self, bench: Bench, spread: Spread = Spread.NODES) -> None:
        self._bench = bench
        self.spread = spread
        self._world: World | None = None
        self._seconds = bench.patience.call
        self.device: str = bench.devices[0]
        self.refused: BaseException | None = None
        """The error that refused the last payload, if that is why it was not carried."""
        self.raised: BaseException | None = None
        """The error that the last payload ended in, whether it was refused or lost."""
        self._frees = True
        """Whatever was to be freed so far has been, and nothing has died of it, as far as that is known."""
        self._spotless = True
        """Whatever was sent has arrived exactly, and no call has raised."""

    def actor_without_transport(self) -> str:
        """An actor that does not have the transport, as that says; Ray then runs no task there that returns tensors.

        Raises:
            NoProcess: there are no actors.
        """
        world = self._world = self._bench.new_world(used=False, spread=self.spread)
        actor, _ = world.actors(2)
        asking = world.driver.has_transport(actor)
        if asking.wait(self._seconds) and asking.error(self._seconds) is None:
            return "" if asking.result() else str(actor)
        self._abandon()  # what becomes of it is for S8 to say
        return ""

    def carries(self, payload: Payload) -> bool:
        """Whether a payload arrives exactly.

        Raises:
            NeedsRayError: the transport cannot do without Ray.
            NoProcess: there are no actors to send it between.
        """
        interrupts.check()
        self.refused = self.raised = None
        world = self._world = self._world or self._bench.new_world(used=False, spread=self.spread)
        carried = again = False
        try:
            carried = self._round_trip(world, payload)
            again = True
        except _Raised as raised:
            origin = origin_of(raised.error)
            again = origin is not None and origin.method in _BEFORE_SENDING
            self.raised = raised.error
            self.refused = raised.error if again else None
        except Hung:
            self._seconds = _ONCE_HUNG
            self._bench.note_hang()
        except ActorDiedError:
            pass
        clean = again and world.reset(self._seconds)
        self._frees = self._frees and (clean or not again) and not world.died()
        if not clean:
            self._abandon()
        self._spotless = self._spotless and carried
        return carried

    def traits(self) -> dict[str, bool]:
        """Of every trait of plain payloads, whether tensors that have it arrive exactly from every type of device."""
        found: dict[str, bool] = {}
        for device in self._bench.devices:
            self.device = device
            for name, payload in self._bench.kind.plain_traits(device):
                found[name] = self.carries(payload) and found.get(name, True)
        return found

    def limits(self) -> Limits:
        """The largest plain objects that extract takes, of those that checks send."""
        budget = self._bench.budget
        sizes = sorted({min(nbytes, budget.big_bytes) for nbytes in _SIZES})
        most_bytes, too_large = self._most(256, sizes, self._bench.kind.simple)
        counts = [count for count in _COUNTS if count <= budget.many_tensors]
        most_tensors, too_many = self._most(1, counts, lambda count: self._bench.kind.simple(max(256, count), count))
        return Limits(most_bytes, most_tensors, too_large, too_many)

    def _most(self, taken: int, amounts: Sequence[int], payload: Callable[[int], Payload]) -> tuple[int, str]:
        """The last of growing amounts before the first one that extract refuses, and with which error."""
        for amount in amounts:
            if self._refusal(payload(amount)):
                self._abandon()  # it may be an earlier object that stands in the way, which is for others to say
                if error := self._refusal(payload(amount)):
                    return taken, error
            taken = amount
        return sys.maxsize, ""

    def _refusal(self, payload: Payload) -> str:
        """The error with which extract refuses a payload, in words; empty if it does not."""
        world = self._world = self._world or self._bench.new_world(used=False, spread=self.spread)
        source, _ = world.actors(2)
        refusal = ""
        try:
            self._value(source.extract(world.new_object_id(), source.build(payload, self.device)))
        except _Raised as raised:
            refusal = _in_words(raised.error)
        except (Hung, ActorDiedError):
            self._abandon()  # what becomes of it is for the checks to say
            return ""
        if not world.reset(self._seconds):
            self._abandon()
        return refusal

    def driver_refusal(self) -> str:
        """The error with which the driver cannot share an object, or receive one of an actor; empty if it can both."""
        world = self._world = self._world or self._bench.new_world(used=False, spread=self.spread)
        (actor,) = world.actors(1)
        try:
            if installed_interface().driver_puts:
                self._fetched(world, world.driver, actor)
            self._fetched(world, actor, world.driver)
        except _Raised as raised:
            return _in_words(raised.error)
        except Hung:
            self._abandon()
        return ""

    def refusal_to_pass_on(self) -> str:
        """The error with which extract refuses what was received, if it takes what was not; else empty."""
        world = self._world = self._world or self._bench.new_world(used=False, spread=self.spread)
        _, destination = world.actors(2)
        payload = self._bench.kind.simple(256)
        try:
            received = self._received(world, payload)
            refusing = destination.extract(world.new_object_id(), received)
            if (error := refusing.error(self._seconds)) is None:
                return ""
            self._spotless = False
            self._value(destination.extract(world.new_object_id(), destination.build(payload, self.device)))
        except _Raised:
            return ""
        except (Hung, ActorDiedError):
            self._abandon()  # what becomes of a chain is for L6 to say
            return ""
        return _in_words(error)

    def _fetched(self, world: World, source: Process, destination: Process) -> None:
        """Share an object as a put does, and receive it as a get does."""
        tensors = source.build(self._bench.kind.simple(256), self.device)
        obj_id = world.new_object_id(put=True)
        metadata = self._value(source.extract(obj_id, tensors))
        comm = self._value(destination.communicator(None, None))
        request = self._value(destination.fetch(obj_id, metadata, comm))
        self._value(destination.wait(obj_id, request))

    def _round_trip(self, world: World, payload: Payload) -> bool:
        return not self._received(world, payload).differences(payload)

    def _received(self, world: World, payload: Payload) -> Held:
        """Extract, send and receive; the object is freed when the world is reset."""
        source, destination = world.actors(2)
        tensors = source.build(payload, self.device)
        obj_id = world.new_object_id()
        metadata = self._value(source.extract(obj_id, tensors))
        comm = self._value(world.driver.communicator(source, destination))
        sending = None
        if not self._bench.target.one_sided.value:
            sending = source.send(obj_id, tensors, metadata, comm)
        receiving = destination.recv(obj_id, metadata, comm)
        if sending is not None:
            receiving.wait_with(sending, self._seconds)
            if sending.done():
                self._value(sending)  # one that has failed leaves its receive waiting for ever
        received = self._value(receiving)
        if sending is not None:
            self._value(sending)
        return received

    def _value(self, pending: Pending[T]) -> T:
        error = pending.error(self._seconds)
        if error is None:
            return pending.result()
        self._spotless = False
        if (needs := needs_ray(error)) is not None:
            raise needs
        raise _Raised(error)

    def close(self, *, hand_over: bool = False) -> None:
        """Give the world back, with all objects freed, which nobody else is going to do.

        Not if that may have ended an actor, as what the driver has shared is freed in this very process.

        Args:
            hand_over: a world in which all went well is for the first example, since processes take seconds to start.
        """
        world = self._world
        if world is not None and self._frees and world.reset(self._seconds) and self._spotless and hand_over:
            self._bench.adopt(world)
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Give the world back as it is."""
        world, self._world = self._world, None
        if world is not None:
            self._bench.release(world, again=False)
