"""Programs of steps, drawn one after another, with a model that knows what each object must be.

Checks of one situation cannot see what goes wrong only when several come together: an object that is described again
while another one shares its tensors, buffers that are used again after an abort. Here any step may follow any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from rdt_conformance.checks.attempts import BOTH, FETCH, RECEIVE, RECEIVE_ALONE, SEND_ALONE, Attempt
from rdt_conformance.engines.rdt import Ref
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.words import count

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.base import Pending
    from rdt_conformance.payloads import Payload

_SIZES = (64, 3_000, 1 << 20)
_LARGE = 8 << 20, 2
"""What is still under way when its receiver is killed."""
_A_MOMENT = 1.0
"""Seconds for that to get under way."""
_TO_NOTICE = 30.0
"""Seconds for Ray to tell that a receiver has died."""
_MOST_OBJECTS = 5
_BLAMED = ("O1", "R2", "L5", "F5", "A8", "M6")
"""What is broken if an object does not arrive: the last of these that speaks of something that happened to it."""


@dataclass
class Shared:
    """A live object."""

    source: Process
    form: tuple[int, int]
    """Bytes and number of the tensors."""
    payload: Payload
    tensors: Held
    ref: Ref
    name: str
    """As in the history."""
    clause: str
    """What is broken if it does not arrive, see `_BLAMED`."""
    used: bool = False
    """A transfer of it has begun."""

    def mark(self, clause: str) -> None:
        """What this clause speaks of has happened to it."""
        self.clause = max(self.clause, clause, key=_BLAMED.index)


@dataclass
class InFlight:
    """A transfer that was begun."""

    shared: Shared
    destination: Process
    receiving: Pending[Held]
    clause: str
    into_buffers: bool = False


class Program:
    """What a sequence of steps has come to so far.

    Args:
        case: the example that it belongs to.
        actors: who takes part, at least two.
    """

    def __init__(self, case: Case, actors: list[Process]) -> None:
        self._case = case
        self._actors = actors
        self._first_clause = "O1"
        self._one_sided = case.target.one_sided.value
        self._objects: list[Shared] = []
        self._in_flight: list[InFlight] = []
        self._arrived: list[tuple[Process, Shared, Held]] = []
        self._buffers: dict[tuple[str, tuple[int, int]], Held] = {}
        self._aborted_into: set[tuple[str, tuple[int, int]]] = set()
        """Those of the buffers that a transfer was aborted into."""
        self._last: dict[str, Any] = {}
        """The last object and the last destination, which the next step is likely to be about as well."""
        self._named_buffers: set[tuple[str, str]] = set()
        """Process and object, where a get has named target buffers."""
        self._made = 0
        self.situations: Counter[str] = Counter()
        """How often what came up."""

    def step(self) -> None:
        """Choose one of the steps that are possible now, and take it."""
        self._case.choose(st.sampled_from(self._possible()))()

    def meet(self) -> None:
        """Every actor receives something from every other one, one transfer after the other."""
        self._case.tell("every actor passes an object to every other one")
        kept = list(self._arrived)
        for source in self._actors:
            shared = self._share_new(source, (_SIZES[0], 1))
            for destination in self._actors:
                if destination is not source:
                    self._pass(shared, destination)
            self._objects.remove(shared)
            shared.ref.drop()
        self._arrived = kept

    def die(self) -> None:
        """An actor is killed, in the middle of receiving where Ray can abort that, and another one takes its place.

        What else is under way to it, or from it, has ended before.
        """
        victim, source, *others = self._case.choose(st.permutations(self._actors))
        for transfer in [each for each in self._in_flight if victim in (each.shared.source, each.destination)]:
            self._settle(transfer)
        cut_off = self._begin_a_large_one(source, victim) if self._case.target.can_abort.value else None
        middle = f", as it receives {cut_off.shared.name}" if cut_off else ""
        self._case.tell(f"{victim.name} is killed{middle}, and a new process takes its place")
        self._case.leave_dirty()
        victim.kill()
        self.situations["killed while it received" if cut_off else "killed"] += 1
        self._bury(victim)
        if cut_off:
            # What comes after that cannot meet the abort any more.
            self._case.error(cut_off.receiving, "R2", _TO_NOTICE, by_ray=True)
            for destination in others:
                self._pass(cut_off.shared, destination)
        self._case.world.come_to_rest()
        self._case.world.restart(victim)

    def _begin_a_large_one(self, source: Process, destination: Process) -> InFlight:
        shared = self._share_new(source, _LARGE)
        self._case.tell(f"{source.name} passes {shared.name}, of {_LARGE[0]:,} bytes, to a task of {destination.name}")
        receiving = destination.consume(shared.ref)
        self._case.world.history.wait_for("recv", destination.name, _A_MOMENT, shared.ref.obj_id)
        return InFlight(shared, destination, receiving, shared.clause)

    def _bury(self, victim: Process) -> None:
        """Forget what a process had that is no more."""
        self._first_clause = "R2"
        for shared in [each for each in self._objects if each.source is victim]:
            self._objects.remove(shared)
            shared.ref.drop()
        for shared in self._objects:
            shared.clause = "R2"
        self._arrived = [arrived for arrived in self._arrived if arrived[0] is not victim]
        self._buffers = {key: held for key, held in self._buffers.items() if key[0] != victim.name}
        self._aborted_into = {key for key in self._aborted_into if key[0] != victim.name}
        self._named_buffers = {key for key in self._named_buffers if key[0] != victim.name}

    def end(self) -> None:
        """Receive whatever is under way, and every live object once more."""
        while self._in_flight:
            self._settle(self._in_flight[0])
        if self._objects:
            self._case.tell("every live object is passed once more")
        for shared in self._objects:
            self._pass(shared, next(actor for actor in self._actors if actor is not shared.source))

    def _possible(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        if len(self._objects) < _MOST_OBJECTS:
            steps.append(self.share)
            if self._objects:
                steps.append(self.share_again)
        if self._objects:
            steps.append(self.receive)
            if self._unused():
                steps.append(self.describe_again)
            if self._ways_to_break_off():
                steps.append(self.break_off)
            if self._free_to_drop():
                steps.append(self.free)
        if self._in_flight:
            steps.append(self.finish)
        return steps

    # --- steps ----------------------------------------------------------------------------------------------------

    def share(self) -> None:
        """An actor returns tensors from a task: new ones, or what has arrived there."""
        passes_on = not self._case.bench.carries.refusal_to_pass_on
        holder = self._draw([None, *self._arrived]) if self._arrived and passes_on else None
        if holder is not None:
            source, shared, held = holder
            self._case.tell(f"{source.name} returns what it received of {shared.name}, as {self._next_name()}")
            self._share(source, shared.form, shared.payload, held, self._first_clause)
            self.situations["received tensors shared again"] += 1
            return
        source = self._draw(self._actors)
        form = self._draw(_SIZES), self._draw((1, 2))
        self._case.tell(
            f"{source.name} returns {count(form[1], 'tensor')} of {form[0]:,} bytes, as {self._next_name()}"
        )
        self._share_new(source, form)

    def share_again(self) -> None:
        """The same tensors in another object."""
        shared = self._draw_object()
        shared.mark("L5")
        self._case.tell(f"{shared.source.name} returns the tensors of {shared.name} again, as {self._next_name()}")
        self._share(shared.source, shared.form, shared.payload, shared.tensors, "L5")
        self.situations["tensors in several live objects"] += 1

    def describe_again(self) -> None:
        """The task that made it is retried, since its reply was lost; so nobody has been told where it is."""
        shared = self._draw_object(self._unused())
        self._case.tell(f"the task that made {shared.name} is retried, as if its reply was lost")
        self._case.ok(shared.source.extract(shared.ref.obj_id, shared.tensors), "M6")
        for each in self._objects:
            if each.tensors is shared.tensors:
                each.mark("M6")
        self.situations["described again"] += 1

    def receive(self) -> None:
        """An object is an argument of a task, or a task gets it."""
        shared = self._draw_object()
        destination = self._draw_destination(shared)
        ways = [self._consume, *([self._get] if self._one_sided else [])]
        ways += [self._get_into_buffers] if self._one_sided and self._case.target.takes_buffers else []
        self._draw(ways)(shared, destination)

    def _consume(self, shared: Shared, destination: Process) -> None:
        self._case.tell(f"{shared.name} is passed to a task of {destination.name}")
        self._begin(InFlight(shared, destination, destination.consume(shared.ref), shared.clause))

    def _get(self, shared: Shared, destination: Process) -> None:
        self._case.tell(f"{destination.name} gets {shared.name}")
        # Ray goes on to use the buffers that were once named for a reference.
        into_buffers = (destination.name, shared.name) in self._named_buffers
        getting = destination.get(shared.ref)
        self._begin(InFlight(shared, destination, getting, shared.clause, into_buffers=into_buffers))

    def _get_into_buffers(self, shared: Shared, destination: Process) -> None:
        used = (destination.name, shared.form) in self._buffers
        which = "target buffers that it has used before" if used else "new target buffers"
        self._case.tell(f"{destination.name} gets {shared.name} into {which}")
        buffers = self._used_buffers(destination, shared)
        self._named_buffers.add((destination.name, shared.name))
        getting = destination.get(shared.ref, buffers=buffers.derive(_alone))
        clause = "A8" if (destination.name, shared.form) in self._aborted_into else shared.clause
        self._settle(self._begin(InFlight(shared, destination, getting, clause, into_buffers=True)))

    def break_off(self) -> None:
        """A transfer of its own is begun and comes to nothing: nobody waits for it, or it is aborted."""
        shared = self._draw_object()
        self._draw(self._ways_to_break_off())(shared, self._draw_destination(shared))

    def _ways_to_break_off(self) -> list[Callable[[Shared, Process], None]]:
        drops = self._one_sided and self._case.target.own_fetch.value
        aborts = self._case.target.can_abort.value
        return [*([self._drop_a_request] if drops else []), *([self._abort] if aborts else [])]

    def _drop_a_request(self, shared: Shared, destination: Process) -> None:
        self._case.tell(f"{destination.name} begins to fetch {shared.name} and drops the request")
        metadata = self._metadata(shared)
        comm = self._case.comm_for_get(destination)
        self._case.ok(destination.fetch(shared.ref.obj_id, metadata, comm), shared.clause).drop()
        shared.mark("F5")
        self.situations["request dropped"] += 1

    def _abort(self, shared: Shared, destination: Process) -> None:
        # An abort in a process is one of the object, so nothing else of the same object may be under way to it.
        for transfer in [each for each in self._in_flight if each.shared is shared]:
            self._settle(transfer)
        way = self._draw((FETCH, RECEIVE) if self._one_sided else (RECEIVE_ALONE, SEND_ALONE, BOTH))
        into_buffers = way == FETCH and self._case.target.takes_buffers
        buffers = self._new_buffers(destination, shared) if into_buffers else None
        where = f"{shared.source.name} to {destination.name}{', into target buffers' if into_buffers else ''}"
        self._case.tell(f"{way} of {shared.name} from {where}, is begun and aborted")
        described = shared.ref.obj_id, self._metadata(shared)
        attempt = Attempt(self._case, shared.source, destination, way, shared.payload, shared.tensors, described)
        if buffers is not None:
            self._aborted_into.add((destination.name, shared.form))
        attempt.begin(buffers)
        attempt.let_block()
        self.situations["aborted in flight" if attempt.end() else "aborted too late"] += 1
        shared.mark("A8")

    def free(self) -> None:
        """Its last reference goes, maybe while tasks still wait for it."""
        shared = self._draw_object(self._free_to_drop())
        under_way = any(transfer.shared is shared for transfer in self._in_flight)
        if under_way:
            self.situations["freed while in flight"] += 1
        self._case.tell(f"the last reference to {shared.name} goes{', which is under way' if under_way else ''}")
        self._objects.remove(shared)
        shared.ref.drop()

    def finish(self) -> None:
        """One of the transfers under way is waited for."""
        transfer = self._draw(self._in_flight)
        self._case.tell(f"{transfer.shared.name}, under way to {transfer.destination.name}, is waited for")
        self._settle(transfer)

    # --- what they are made of ------------------------------------------------------------------------------------

    def _share_new(self, source: Process, form: tuple[int, int]) -> Shared:
        payload = self._case.payload(*form, seed=self._made)
        return self._share(source, form, payload, source.build(payload), self._first_clause)

    def _share(self, source: Process, form: tuple[int, int], payload: Payload, tensors: Held, clause: str) -> Shared:
        name = self._next_name()
        self._made += 1
        ref = source.produce(tensors)
        self._case.names[ref.obj_id] = name
        shared = Shared(source, form, payload, tensors, ref, name, clause)
        self._objects.append(shared)
        return shared

    def _pass(self, shared: Shared, destination: Process) -> None:
        """Pass it to a task, and wait for it."""
        self._settle(self._begin(InFlight(shared, destination, destination.consume(shared.ref), shared.clause)))

    def _next_name(self) -> str:
        return f"obj{self._made + 1}"

    def _begin(self, transfer: InFlight) -> InFlight:
        self._in_flight.append(transfer)
        if len(self._in_flight) > 1:
            self.situations["several in flight"] += 1
        return transfer

    def _settle(self, transfer: InFlight) -> None:
        self._in_flight.remove(transfer)
        clause = transfer.clause
        if transfer.into_buffers and self._case.error(transfer.receiving, clause) is not None:
            # Whether it may refuse them, and how, is for the checks of buffers.
            self.situations["target buffers refused"] += 1
            return
        held = self._case.ok(transfer.receiving, clause)
        self._case.arrived(held, transfer.shared.payload, clause=clause)
        if clause != "R2":  # whether something was cut off in the middle nobody knows here for certain
            self._case.witness(clause)
        if transfer.into_buffers:
            self.situations["received into target buffers"] += 1
        else:
            self._arrived.append((transfer.destination, transfer.shared, held.part(0)))

    def _used_buffers(self, destination: Process, shared: Shared) -> Held:
        """Target buffers that were used there before for the like, if there are any, and hold something else so far."""
        buffers = self._buffers.get((destination.name, shared.form))
        if buffers is None:
            return self._new_buffers(destination, shared)
        self.situations["target buffers used again"] += 1
        buffers.apply(self._case.kind.overwrite, shared.payload.inverse())
        return buffers

    def _new_buffers(self, destination: Process, shared: Shared) -> Held:
        buffers = destination.make(self._case.kind.buffers, shared.payload, self._case.bench.device)
        self._buffers[destination.name, shared.form] = buffers
        return buffers

    def _metadata(self, shared: Shared) -> bytes:
        return self._case.ok(self._case.driver.metadata_of(shared.ref), shared.clause)

    def _free_to_drop(self) -> list[Shared]:
        """Objects that no get is under way for: whoever gets one has a reference of its own."""
        busy = [transfer.shared for transfer in self._in_flight if not transfer.receiving.what.startswith("consume")]
        return [shared for shared in self._objects if shared not in busy]

    def _draw(self, choices: Any) -> Any:
        numbered = list(choices)
        return numbered[self._case.choose(st.integers(0, len(numbered) - 1))] if len(numbered) > 1 else numbered[0]

    def _draw_object(self, among: list[Shared] | None = None) -> Shared:
        return self._draw_near(among or self._objects, "object")

    def _unused(self) -> list[Shared]:
        return [shared for shared in self._objects if not shared.used]

    def _draw_destination(self, shared: Shared) -> Process:
        shared.used = True
        return self._draw_near([actor for actor in self._actors if actor is not shared.source], "destination")

    def _draw_near(self, choices: list[Any], label: str) -> Any:
        """The last one of these in half of the cases."""
        last = [each for each in choices if each is self._last.get(label)]
        self._last[label] = self._draw([*choices, *last * len(choices)])
        return self._last[label]


def _alone(tensors: Any) -> list[Any]:
    """The one object of a get, as target buffers come."""
    return [tensors]
