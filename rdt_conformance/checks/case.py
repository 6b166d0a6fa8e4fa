"""What a check works with: one example on a fresh pair of hands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis
from hypothesis import strategies as st

from rdt_conformance import author
from rdt_conformance.checks.budget import Budget
from rdt_conformance.checks.orders import Interruption, orders
from rdt_conformance.checks.refusals import is_full
from rdt_conformance.checks.verdicts import NotExercised, broken
from rdt_conformance.contract import Level, clause as clause_of
from rdt_conformance.engines.base import Hung, Pending, Spread, origin_of
from rdt_conformance.engines.reference.errors import ActorDiedError, NeedsRayError, ProtocolError, needs_ray
from rdt_conformance.engines.reference.worker import AS_IN_RAY, Settings
from rdt_conformance.history import describe_error
from rdt_conformance.payloads.base import DEFAULT_MAX_BYTES, DEFAULT_MAX_TENSORS
from rdt_conformance.ray_interface import installed_interface

if TYPE_CHECKING:
    from rdt_conformance.checks.bench import Bench
    from rdt_conformance.engines.reference.schedule import Order
    from rdt_conformance.engines.world import Held, Process, World
    from rdt_conformance.payloads.base import Family, Payload

T = TypeVar("T")

_SWEEP_SECONDS = 2.5
"""How long a call may be interrupted before one of its lines after the other, at least,"""
_SWEEP_SHARE = 3
"""and in multiples of a check's own time."""
_OF_THE_TRANSPORT = (ProtocolError, ActorDiedError, TimeoutError)
"""Errors of the reference that only a transport can have caused."""


class Case:
    """One example: drawn inputs, a world to play them in, and the words to judge what happens.

    Args:
        bench: the transport under test on its engine.
        world: where to play; clean, and clean again afterwards.
        clauses: what the check can decide. The first one is blamed for failures that name no clause.
        data: where inputs are drawn from; None if this one draws nothing.
    """

    def __init__(self, bench: Bench, world: World, clauses: tuple[str, ...], data: st.DataObject | None = None) -> None:
        self.bench = bench
        self.world = world
        self.target = bench.target
        self.kind = bench.kind
        self.budget: Budget = bench.budget
        self.patience = bench.patience
        self._clauses = clauses
        self._data = data
        self.drawn: list[str] = []
        """The example in words: what was drawn, and what was told."""
        self._told = 0
        self._goes_through = False
        self.names: dict[str, str] = {}
        """What histories call objects, by their ids; others are numbered as they appear."""
        self.witnessed: set[str] = set()
        self.advice: list[tuple[str, str]] = []
        self.facts: dict[str, Any] = {}
        self.left_blocked = False
        self.renewed = False
        self.no_room = ""
        """The error by which a source had no room for an object beside others, as it may."""

    @property
    def choices(self) -> tuple[Any, ...]:
        """Everything that was chosen so far, as Hypothesis keeps it."""
        return () if self._data is None else self._data.conjecture_data.choices

    def begin(self) -> None:
        """Choose what a transport that carries the memory of several types of device sends in this example."""
        if len(self.bench.devices) > 1:
            self.send_from(self.draw(st.sampled_from(self.bench.devices), "device"))

    def send_from(self, device: str) -> None:
        """Send the memory of this type of device from now on."""
        self.bench.device = self.world.device = device

    # --- inputs ---------------------------------------------------------------------------------------------------

    def draw(self, strategy: st.SearchStrategy[T], label: str = "") -> T:
        """Choose a value; it shrinks if the example fails, and its repr is shown."""
        value = self.choose(strategy)
        text = str(getattr(value, "__name__", repr(value)))
        self.drawn.append(f"{label or 'value'} = {text if len(text) <= 300 else text[:299] + '…'}")
        return value

    def choose(self, strategy: st.SearchStrategy[T]) -> T:
        """Like `draw` for what is better told in words, see `tell`."""
        assert self._data is not None, "nothing to draw from"
        return self._data.draw(strategy)

    def tell(self, step: str) -> None:
        """Say in words what the example does next; told steps are numbered."""
        self._told += 1
        self.drawn.append(f"{self._told}. {step}")

    def going_through(self, label: str, value: object) -> None:
        """Show what is tried just now, of the many things that one example goes through, instead of the last one."""
        text = f"{label} = {value!r}"
        if self._goes_through:
            self.drawn[-1] = text
        elif not any(line.endswith(f" = {value!r}") for line in self.drawn):
            self._goes_through = True
            self.drawn.append(text)

    def payloads(self, **limits: Any) -> st.SearchStrategy[Payload]:
        """Plain payloads, of which this transport carries each kind alone. `limits` as in `PayloadKind.payloads`.

        Raises:
            NotExercised: the transport refuses objects of as many tensors.
        """
        carries = self.bench.carries
        asked = {"device": self.bench.device, "plain": True, "min_tensors": 1, "avoid": carries.avoid, **limits}
        count = min(asked.get("max_tensors", DEFAULT_MAX_TENSORS), carries.limits.most_tensors)
        if asked["min_tensors"] > count:
            raise self.cannot(carries.limits.refusal(0, asked["min_tensors"]))
        nbytes = min(asked.get("max_bytes", DEFAULT_MAX_BYTES), carries.limits.most_bytes // max(count, 1))
        return self.kind.payloads(**{**asked, "max_tensors": count, "max_bytes": nbytes})

    def families(self) -> st.SearchStrategy[Family]:
        """Payloads whose tensors share memory, of which this transport carries each kind alone."""
        return self.kind.families(device=self.bench.device, avoid=self.bench.carries.avoid)

    def payload(self, nbytes: int = 256, count: int = 1, seed: int = 0) -> Payload:
        """One plain payload of a given size.

        Raises:
            NotExercised: the transport refuses objects as large. An example in which something was drawn is given up.
        """
        if nbytes > 256 or count > 1:  # as large as the one by which it was found out whether anything is carried
            refusal = self.bench.carries.limits.refusal(nbytes, count)
            if refusal:
                self.unless(bool(self.drawn))
                raise self.cannot(refusal)
        return self.kind.simple(nbytes, count, seed)

    @property
    def driver(self) -> Process:
        """The driver's process."""
        return self.world.driver

    def actors(self, count: int, *, first_at_one_end: bool = False) -> list[Process]:
        """`count` actors.

        Args:
            count: how many.
            first_at_one_end: in every transfer the first of them is source or destination. So they can share GPUs also
                where a transport does not carry within one: the first has its own (see `Places.of`).

        Raises:
            NotExercised: such a transport needs more GPUs for that.
        """
        lack = self.bench.lack_of_gpus(count)
        if lack and not first_at_one_end:
            raise self.cannot(lack)
        return self.world.actors(count)

    def up_to(self, count: int) -> list[Process]:
        """Two or more actors, as many as can all send to each other but no more than `count`."""
        while count > 2 and self.bench.lack_of_gpus(count):
            count -= 1
        return self.actors(count)

    @property
    def driver_takes_part(self) -> bool:
        """Whether the driver shares and receives objects: not before Ray 2.59; if a transport refuses, L12 says so."""
        shares = installed_interface().driver_puts and self.target.one_sided.value
        return shares and not self.bench.carries.driver_refusal

    # --- one direct transfer, made of single calls ----------------------------------------------------------------

    def described(self, source: Process, tensors: Held, obj_id: str | None = None) -> tuple[str, bytes]:
        """Extract kept tensors under an id; the id and the metadata."""
        obj_id = obj_id or self.world.new_object_id()
        return obj_id, self.ok(source.extract(obj_id, tensors))

    def comm_for_get(self, process: Process) -> bytes:
        """Communicator metadata as Ray makes it for a get: both actors None."""
        return self.ok(process.communicator(None, None))

    @contextmanager
    def interleaved(self) -> Iterator[None]:
        """In the body, threads go on one at a time, in an order that is drawn."""
        assert self._data is not None, "nothing to draw from"
        with self.in_order(self.draw(orders(self._data), "order")):
            yield

    def in_order(self, order: Order) -> AbstractContextManager[None]:
        """In the body, threads go on one at a time."""
        return self.world.in_order(order, author.folders_of(self.target.transport_class))

    def interruptions(self) -> Iterator[Order]:
        """Orders in which the first call is interrupted by whatever else is submitted: once before each of its lines.

        Each is for one round, with objects of its own; there is none when every line has had its turn, or time is over:
        a transport may take long to build, and have long calls. Then it was some lines of every part of them.
        """
        tried: set[tuple[str, int]] = set()
        seconds = math.inf if self.bench.alone else max(_SWEEP_SECONDS, _SWEEP_SHARE * self.budget.seconds)
        until = time.monotonic() + seconds
        for share in range(Interruption.SHARES):
            order = None
            while order is None or order.happened:
                if order is not None and time.monotonic() > until:
                    self.fact("ended early, as time was over", {"rounds of interruptions": 1})
                    return
                if tried:
                    self.world.history.clear()
                order = Interruption(tried, share)
                yield order

    # --- judging --------------------------------------------------------------------------------------------------

    def ok(self, pending: Pending[T], clause: str | None = None, seconds: float | None = None) -> T:
        """The result of a call that has to succeed; `clause` (else the check's first) is broken if it does not."""
        clause = clause or self._clauses[0]
        began = time.monotonic()
        try:
            result = pending.result(seconds or self.patience.call)
            self.bench.note_wait(time.monotonic() - began)
            return result
        except Hung as hung:
            raise self.hung(hung, clause) from None
        except Exception as error:
            self._judge_error(pending.what, error, clause)
            raise  # not the transport's: the check itself is wrong

    def error(
        self,
        pending: Pending[Any],
        clause: str | None = None,
        seconds: float | None = None,
        *,
        by_ray: bool = False,
    ) -> Exception | None:
        """What a call raised that may fail, or None; `clause` is broken if it hangs.

        So it is if the transport answered with something that Ray could not work with, unless the situation is one
        where an error of Ray's own is as good as the transport's (`by_ray`).
        """
        began = time.monotonic()
        try:
            error = pending.error(seconds or self.patience.call)
        except Hung as hung:
            raise self.hung(hung, clause) from None
        if error is None:
            self.bench.note_wait(time.monotonic() - began)
        if isinstance(error, NeedsRayError):
            raise NotExercised(str(error))
        if isinstance(error, ProtocolError) and not by_ray:  # no answer that a transport may give
            raise broken(clause or self._clauses[0], f"{pending.what}: {describe_error(error)}") from error
        if error is not None and not isinstance(error, Exception):
            raise error
        return error

    def _judge_error(self, what: str, error: Exception, clause: str) -> None:
        if (needs := needs_ray(error)) is not None:
            raise NotExercised(str(needs)) from None
        origin = origin_of(error)
        if is_full(error, self.world.history):
            self.no_room = describe_error(error)
            if self._data is None:  # a soak's, which has no other example
                raise NotExercised(f"the source had no room for one more object: {self.no_room}")
            self.unless(True)
        if origin is not None:
            raise broken(clause, f"{origin} raised {describe_error(error)}") from error
        if isinstance(error, _OF_THE_TRANSPORT):
            raise broken(clause, f"{what}: {describe_error(error)}") from error

    def hung(self, hung: Hung, clause: str | None) -> Hung:
        """The same hang, with the clause it breaks, else the check's first."""
        hung.clause = clause or self._clauses[0]  # type: ignore[attr-defined]
        return hung

    def require(self, condition: bool, clause: str, happened: str | Callable[[], str]) -> None:
        """Break `clause` unless `condition` holds; `happened` says in one sentence what did."""
        if not condition:
            raise broken(clause, happened if isinstance(happened, str) else happened())

    def advise(self, condition: bool, clause: str, happened: str) -> None:
        """Like `require` for a SHOULD clause: noted, and the check goes on."""
        assert clause_of(clause).level is Level.SHOULD, f"{clause} is no SHOULD clause"
        self.witness(clause)
        if not condition:
            self.advice.append((clause, happened))

    def arrived(self, held: Held, *payloads: Payload, clause: str | None = None) -> None:
        """What arrived has to equal what was sent."""
        differences = held.differences(*payloads)
        if differences:
            more = f" (and {len(differences) - 1} more differences)" if len(differences) > 1 else ""
            raise broken(clause or self._clauses[0], f"what arrived at {held.process} differs: {differences[0]}{more}")

    def witness(self, *clauses: str) -> None:
        """The situation these clauses speak of has really come up in this example."""
        self.witnessed.update(clauses)

    def fact(self, name: str, value: Any) -> None:
        """Note something for the report that has no verdict. Over the examples lists become one, and counts add up."""
        self.facts[name] = value

    def unless(self, condition: bool) -> None:
        """Give up this example: what was drawn leads nowhere."""
        hypothesis.assume(not condition)

    def cannot(self, reason: str) -> NotExercised:
        """To raise when the check cannot be carried out on this machine or with this transport."""
        return NotExercised(reason)

    def leave_dirty(self) -> None:
        """This example leaves calls under way on purpose; its world is not used again."""
        self.left_blocked = True

    def renew(self, settings: Settings = AS_IN_RAY, *, used: bool = False, spread: Spread | None = None) -> None:
        """Go on in a fresh world, see `Bench.new_world`."""
        self.bench.release(self.world, again=False)
        self.world = self.bench.new_world(settings, used=used, spread=spread)
        self.world.device = self.bench.device
        self.renewed = True
