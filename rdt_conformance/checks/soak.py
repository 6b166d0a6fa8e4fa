"""Work without an end: random steps of a user's program on Ray, with a model that knows what each object must be.

It goes in rounds. In each, steps follow each other at random; when everything has been freed, it is counted what every
process still holds; then an actor is killed while transfers are under way from it, to it and, if there are others, past
it, and replaced.
What is chosen depends on the seed alone, and not on what came of it.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from rdt_conformance import interrupts
from rdt_conformance.engines.base import DRIVER, Hung

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.base import Pending
    from rdt_conformance.engines.rdt import Ref
    from rdt_conformance.engines.world import Held, Process
    from rdt_conformance.payloads import Payload

T = TypeVar("T")

GIVEN_UP = 20.0
"""Seconds after which Ray takes a transfer for lost: the longest that anything may last which a death has cut off."""
ACTORS = 4
"""Fewer if so many cannot all send to each other: with two GPUs, and a transport that only carries between them."""
STEADY = 2
"""At most so many are never killed, as one has to be that is: what they hold is compared over the whole time."""
_SIZES = (64, 3_000, 100_000, 1 << 20)
_LARGE = 8 << 20
"""Bytes that are under way for long enough to be killed meanwhile."""
_MOST_OBJECTS, _MOST_ARRIVED, _MOST_IN_FLIGHT = 6, 8, 6
_BURST = 10
"""Objects that come and go in one step, since what happens to one in many needs many."""
_AROUND_A_DEATH = 6
"""Steps before it, whose objects and transfers it meets, and after it."""
_A_MOMENT = 2.0
"""Seconds for a transfer to get under way, before whoever takes part is killed all the same."""
LAST_STEPS = 25


@dataclass(eq=False)
class Shared:
    """An object that somebody refers to."""

    number: int
    source: Process
    payload: Payload
    tensors: Held
    ref: Ref
    lost: bool = False
    """Its source has died."""
    buffered: set[str] = field(default_factory=set)
    """Processes that have named target buffers for it: Ray fills those again with every later get there."""

    def __str__(self) -> str:
        return f"object {self.number}"


@dataclass(eq=False)
class InFlight:
    """A transfer that was begun."""

    shared: Shared
    destination: Process
    receiving: Pending[Held]
    way: str
    cut_off: bool = False
    """Its destination has died."""


@dataclass(eq=False)
class Arrived:
    """What a process has received and keeps."""

    shared: Shared
    destination: Process
    held: Held


class Program:
    """The steps so far and what must have come of them.

    Args:
        case: whose words judge.
        chooser: makes every choice.
    """

    def __init__(self, case: Case, chooser: random.Random) -> None:
        self._case = case
        self._random = chooser
        self._actors = case.up_to(ACTORS)
        self._steady = self._actors[: min(STEADY, len(self._actors) - 1)]
        self._aborts = case.target.can_abort.value
        self._objects: list[Shared] = []
        self._in_flight: list[InFlight] = []
        self._arrived: list[Arrived] = []
        self._buffers: dict[tuple[str, int, int], Held] = {}
        self.steps = 0
        self.made = 0
        self.sent = 0
        """Bytes of all that was made."""
        self.deaths = 0
        self.situations: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=LAST_STEPS)

    @property
    def survives_deaths(self) -> bool:
        """Whether the others live on when an actor dies: if Ray cannot abort, it kills both ends of a transfer."""
        return self._aborts or self._case.target.one_sided.value

    @property
    def steady(self) -> list[str]:
        """The processes that are never killed."""
        return [DRIVER, *(actor.name for actor in self._steady)]

    def step(self) -> None:
        """Choose one of the steps that are possible now, take it, and look at something that arrived earlier."""
        interrupts.check()
        self._pick(self._possible())()
        if self._arrived:
            self._look_back(self._pick(self._arrived))

    def warm_up(self) -> None:
        """Let everybody receive from everybody once, so that what is made at first use is there."""
        for source in self._actors:
            shared = self._share(source, self._case.payload(3_000, 2, seed=self.made))
            for destination in self._destinations(shared):
                self._settle(self._receive(shared, destination, self._ways(shared)[0]))
        self.drop_everything()

    def drop_everything(self) -> None:
        """Receive what is under way, look at all that arrived once more, and free it all."""
        while self._in_flight:
            self._settle(self._in_flight[0])
        for arrived in self._arrived:
            self._look_back(arrived)
        self._tell("everything is dropped")
        self._objects.clear()
        self._arrived.clear()
        self._buffers.clear()
        self._case.world.history.clear()
        if not self._case.world.reset(self._seconds):
            stacks = self._case.world.stacks()
            raise self._case.hung(Hung("freeing everything", self._seconds, stacks), self._blamed())

    # --- steps ----------------------------------------------------------------------------------------------------

    def _possible(self) -> list[Callable[[], object]]:
        steps: list[Callable[[], object]] = []
        if len(self._objects) < _MOST_OBJECTS:
            steps += [self._produce, self._produce, self._burst]
        if self._objects:
            steps.append(self._free)
            if len(self._objects) < _MOST_OBJECTS:
                steps.append(self._share_again)
            if len(self._in_flight) < _MOST_IN_FLIGHT:
                steps += [self._begin, self._begin, self._begin]
        if self._in_flight:
            steps += [self._finish, self._finish]
        if len(self._arrived) > _MOST_ARRIVED:
            return [self._forget]
        return steps

    def _produce(self) -> None:
        payload = self._case.payload(self._pick(_SIZES), self._pick((1, 2, 5)), seed=self.made)
        self._share(self._pick(self._actors), payload)

    def _share_again(self) -> None:
        """The same tensors in another object."""
        alive = [shared for shared in self._objects if not shared.lost]
        if not alive:
            return
        shared = self._pick(alive)
        self._add(shared.source, shared.payload, shared.tensors, f"returns the tensors of {shared} once more")
        self.situations["tensors in several objects"] += 1

    def _burst(self) -> None:
        """Many objects of the same tensors, which a task takes all at once."""
        source, payload = self._pick(self._actors), self._case.payload(64, seed=self.made)
        destination = self._pick([actor for actor in self._actors if actor is not source])
        self._tell(f"{source} returns {_BURST} objects for one task of {destination}")
        tensors = source.build(payload)
        refs = [source.produce(tensors) for _ in range(_BURST)]
        self.made += _BURST
        self.sent += _BURST * payload.nbytes
        held = self._case.ok(destination.consume(*refs), self._blamed(), self._seconds)
        self._case.arrived(held, *[payload] * _BURST, clause="O1")
        for ref in refs:
            ref.drop()
        held.drop()
        tensors.drop()

    def _begin(self) -> None:
        """An object is an argument of a task, or somebody gets it."""
        shared = self._pick(self._objects)
        destination = self._pick(self._destinations(shared))
        self._receive(shared, destination, self._pick(self._ways(shared, destination)))

    def _free(self) -> None:
        """The last reference goes, maybe while tasks still wait for the object."""
        busy = [each.shared for each in self._in_flight if each.way != "as an argument"]
        idle = [shared for shared in self._objects if shared not in busy]
        if not idle:
            return
        shared = self._pick(idle)
        if any(each.shared is shared for each in self._in_flight):
            self.situations["freed in flight"] += 1
        self._tell(f"{shared} is freed")
        self._objects.remove(shared)
        shared.ref.drop()

    def _finish(self) -> None:
        self._settle(self._pick(self._in_flight))

    def _forget(self) -> None:
        """A process lets go of what it has received."""
        arrived = self._pick(self._arrived)
        self._arrived.remove(arrived)
        arrived.held.drop()

    def kill(self) -> str:
        """Kill an actor with transfers under way from it, to it and past it, replace it, and go on; its name."""
        for _ in range(_AROUND_A_DEATH):
            self.step()
        victim = self._pick(self._actors[len(self._steady) :])
        steady = self._steady.copy()
        self._random.shuffle(steady)
        if not self._aborts:
            for transfer in [each for each in self._in_flight if victim in (each.shared.source, each.destination)]:
                self._settle(transfer)
        past_it = [(steady[0], steady[1])] if len(steady) > 1 else []
        for source, destination in self._shuffled([(victim, steady[0]), (steady[0], victim), *past_it]):
            shared = self._share(source, self._case.payload(_LARGE, 2, seed=self.made))
            # Of a get Ray knows nothing, and kills nobody.
            self._receive(shared, destination, self._pick(self._ways(shared)) if self._aborts else "by a get")
        where = self._pick((steady[0], victim))
        self._case.world.history.wait_for(self._pick(("recv", "fetch")), where.name, _A_MOMENT)
        self._tell(f"{victim} is killed")
        victim.kill()
        self.deaths += 1
        self._bury(victim)
        self._case.world.restart(victim)
        self._tell(f"{victim} is replaced")
        for _ in range(_AROUND_A_DEATH):
            self.step()
        return victim.name

    def _bury(self, victim: Process) -> None:
        """What a death makes of everything that the dead process had to do with."""
        for shared in self._objects:
            shared.lost |= shared.source is victim
        for transfer in self._in_flight:
            transfer.shared.lost |= transfer.shared.source is victim
            transfer.cut_off |= transfer.destination is victim
        self._arrived = [arrived for arrived in self._arrived if arrived.destination is not victim]
        self._buffers = {key: held for key, held in self._buffers.items() if key[0] != victim.name}

    # --- what they are made of ------------------------------------------------------------------------------------

    def _share(self, source: Process, payload: Payload) -> Shared:
        return self._add(source, payload, source.build(payload), f"returns {payload!r}")

    def _add(self, source: Process, payload: Payload, tensors: Held, told: str) -> Shared:
        self.made += 1
        self.sent += payload.nbytes
        self._tell(f"{source} {told} as object {self.made}")
        shared = Shared(self.made, source, payload, tensors, source.produce(tensors))
        self._objects.append(shared)
        return shared

    def _destinations(self, shared: Shared) -> list[Process]:
        there = [actor for actor in self._actors if actor is not shared.source]
        return [*there, self._case.driver] if self._case.driver_takes_part else there

    def _ways(self, shared: Shared, destination: Process | None = None) -> list[str]:
        """How an object can be received: the driver has no tasks, and of what may fail no buffers are filled."""
        argument = [] if destination is not None and destination.name == DRIVER else ["as an argument"]
        if not self._case.target.one_sided.value:
            return argument
        if shared.lost and not self._aborts:
            return ["by a get"]
        if destination is None or not self._case.target.takes_buffers:
            return [*argument, "by a get"]
        gets = [] if destination.name in shared.buffered else ["by a get"]
        return [*argument, *gets, *([] if shared.lost else ["into buffers"])] or ["by a get"]

    def _receive(self, shared: Shared, destination: Process, way: str) -> InFlight:
        self._tell(f"{destination} receives {shared} {way}")
        if way == "into buffers":  # what is received there anyway must not be
            for other in [each for each in self._in_flight if each.shared is shared]:
                self._settle(other)
            shared.buffered.add(destination.name)
        if way == "as an argument" and destination.name != DRIVER:
            receiving = destination.consume(shared.ref)
        elif way == "into buffers":
            receiving = destination.get(shared.ref, buffers=self._buffers_for(shared, destination).derive(_alone))
        else:
            receiving = destination.get(shared.ref)
        transfer = InFlight(shared, destination, receiving, way)
        self._in_flight.append(transfer)
        self.situations[f"received {way}"] += 1
        if way == "into buffers":  # nothing else may be received into them meanwhile
            self._settle(transfer)
        return transfer

    def _settle(self, transfer: InFlight) -> None:
        """Wait for a transfer, and judge what it brings."""
        self._in_flight.remove(transfer)
        shared, destination = transfer.shared, transfer.destination
        self._tell(f"{destination} has to have {shared}")
        if transfer.cut_off:
            self._case.error(transfer.receiving, "R2", self._seconds, by_ray=True)
            return
        if shared.lost:
            self.situations["received from the dead"] += 1
            if self._aborts:
                self._case.witness("R1")
            if self._case.error(transfer.receiving, self._blamed(shared), self._seconds, by_ray=True) is not None:
                return
        if transfer.way == "into buffers" and self._case.error(transfer.receiving, "B1", self._seconds) is not None:
            self.situations["target buffers refused"] += 1  # whether it may, and how, is for the checks of buffers
            return
        held = self._case.ok(transfer.receiving, self._blamed(shared), self._seconds)
        self._case.arrived(held, shared.payload, clause=self._blamed(shared) if shared.lost else "O1")
        if self.deaths:
            self._case.witness("R2")
        if transfer.way == "into buffers" or shared.lost:  # whether a lost object arrives is a matter of luck
            held.drop()
        else:
            self._arrived.append(Arrived(shared, destination, held))

    def _look_back(self, arrived: Arrived) -> None:
        """What has arrived stays as it is, whatever comes of the object and of others."""
        freed = arrived.shared not in self._objects
        self._case.arrived(arrived.held, arrived.shared.payload, clause="G5" if freed else "D6")
        self._case.witness("G5" if freed else "D6")

    def _buffers_for(self, shared: Shared, destination: Process) -> Held:
        """Target buffers, used before for the like if there are any, which hold something else so far."""
        key = (destination.name, shared.payload.nbytes, shared.payload.count)
        if key not in self._buffers:
            self._buffers[key] = destination.make(self._case.kind.buffers, shared.payload, self._case.bench.device)
        else:
            self._buffers[key].apply(self._case.kind.overwrite, shared.payload.inverse())
        return self._buffers[key]

    def _blamed(self, shared: Shared | None = None) -> str:
        """What is broken if something does not arrive or end: before and after the first death, or from the dead."""
        if shared is not None and shared.lost and self._aborts:
            return "R1"
        return "R2" if self.deaths else "L1"

    @property
    def _seconds(self) -> float:
        """How long anything may take: after a death as long as Ray may take to give it up, and a little more."""
        return self._case.patience.call + (2 * GIVEN_UP if self.deaths else 0)

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def _shuffled(self, choices: list[Any]) -> list[Any]:
        return self._random.sample(choices, len(choices))

    def _tell(self, what: str) -> None:
        self.steps += 1
        self.last.append(f"{self.steps}: {what}")


def _alone(tensors: Any) -> list[Any]:
    """The one object of a get, as target buffers come."""
    return [tensors]
