"""Generates legal programs.

A program is legal if every step makes sense where it stands, and if what comes of it is fixed. So none asks for what
Ray leaves open:

* Whether an object exists when it is passed on is certain: outside of `Together` every step is over before the next one
  begins, and inside, objects either were there before or their actor is busy until all steps have begun.
* An object whose owner has died is only dropped: what then becomes of it is a matter of Ray's ownership, not of RDT's.
* Objects are not gotten together with errors: which of them are fetched before the error is raised depends on where
  Ray's core keeps them.
* An actor that has died takes no objects, and what it made goes to nobody once it has been started again: which of the
  two is meant then is a matter of names.

Nor does any run into a limit of Ray's; those have programs of their own in `limits`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TypeVar

from rdt_conformance.fidelity.made import Object, Value
from rdt_conformance.fidelity.programs import Program, Traits
from rdt_conformance.fidelity.steps import (
    ACTORS,
    DRIVER,
    Build,
    Candidate,
    Change,
    Consume,
    Drop,
    Fail,
    Fit,
    Get,
    GetOnto,
    Kill,
    Look,
    MakeBuffers,
    Mishap,
    Put,
    Register,
    Restart,
    Return,
    Shape,
    Simple,
    Step,
    Together,
    Trouble,
    WaitFreed,
)
from rdt_conformance.ray_interface import survives_puts_of_nothing

T = TypeVar("T")

_WITH_TENSORS = tuple(shape for shape in Shape if shape is not Shape.NONE)
A_MOMENT = 0.05
"""Seconds that a process waits for what does not happen."""
LONG = 10.0
"""Seconds that a process waits at most for what happens at once."""
USERS_TIMEOUT = 25.0
"""Seconds that a user gives a get; Ray itself would give it 60."""
LEAST, MOST = 3, 9
"""Moves in a program; most of them are one step each."""


def generate(random: Random, traits: Traits) -> Program:
    """A legal program."""
    draft = _Draft(random, traits)
    for _ in range(random.randint(LEAST, MOST)):
        draft.move()
    return Program(tuple(draft.steps))


def programs(seed: int, traits: Traits) -> Iterator[Program]:
    """Different legal programs without end, the same for the same seed."""
    random = Random(seed)
    seen: set[Program] = set()
    while True:
        program = generate(random, traits)
        if program not in seen:
            seen.add(program)
            yield program


class _Draft:
    """A program in the making, and what there is when its steps have been played."""

    def __init__(self, random: Random, traits: Traits) -> None:
        self._random = random
        self._traits = traits
        self.steps: list[Step] = []
        self._objects: list[Object] = []
        """Those that the driver refers to."""
        self._values: list[Value] = []
        self._dead = ""
        self._object_names = (f"x{number}" for number in itertools.count(1))
        self._value_names = (f"v{number}" for number in itertools.count(1))

    def move(self) -> None:
        """Append one step, or a few that belong together."""
        moves: dict[Callable[[], None], int] = {
            self._return: 6,
            self._return_again: 2,
            self._fail: 1,
            self._put: 3 if self._traits.one_sided else 1,
            self._consume: 8,
            self._get: 5 if self._traits.one_sided else 2,
            self._get_into_buffers: 2,
            self._get_onto: int(self._traits.ray.target_devices),
            self._change: 2,
            self._drop: 3,
            self._wait_freed: 3,
            self._at_once: 3,
            self._while_busy: 4,
            self._trouble: 3,
            self._kill_or_restart: 8 if self._dead else int(self._traits.survives),
            self._register: 1,
        }
        before = len(self.steps)
        while len(self.steps) == before:
            self._random.choices(list(moves), list(moves.values()))[0]()

    # --- making objects -------------------------------------------------------------------------------------------

    def _build(self, process: str, shape: Shape | None = None) -> Value:
        shape = shape or self._one_of(tuple(Shape))
        value = Value(next(self._value_names), process, shape, empty=shape is Shape.NONE)
        self.steps.append(Build(value.name, process, shape))
        self._values.append(value)
        return value

    def _return(self) -> None:
        value = self._build(self._actor())
        self.steps.append(self._returned(value))

    def _return_again(self) -> None:
        values = [value for value in self._values if value.process in self._alive()]
        if values:
            self.steps.append(self._returned(self._one_of(values)))

    def _returned(self, value: Value, *, fails: bool = False) -> Return:
        made = Object(
            next(self._object_names), value.process, DRIVER, value.name, value.shape, fails=fails, empty=value.empty
        )
        self._objects.append(made)
        return Return(made.name, value.process, value.name)

    def _fail(self) -> None:
        self.steps.append(self._failing(self._actor()))

    def _failing(self, actor: str) -> Fail:
        made = Object(next(self._object_names), actor, DRIVER, "", None, fails=True)
        self._objects.append(made)
        return Fail(made.name, actor)

    def _put(self) -> None:
        by_driver = self._traits.driver_puts and self._traits.ray.driver_puts
        process = self._process() if by_driver else self._actor()
        value = self._build(process, None if survives_puts_of_nothing() else self._one_of(_WITH_TENSORS))
        made = Object(
            next(self._object_names), value.process, value.process, value.name, value.shape, empty=value.empty
        )
        self.steps.append(Put(made.name, value.process, value.name))
        if self._traits.one_sided:
            self._objects.append(made)

    # --- using them -----------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        if objs := self._some_objects():
            self.steps.append(self._consumed(self._actor(), objs))

    def _consumed(self, actor: str, objs: Sequence[Object], *, errs: bool = False) -> Consume:
        step = Consume(next(self._value_names), actor, tuple(obj.name for obj in objs))
        if not errs:
            self._receive(step.value, actor, objs)
        return step

    def _receive(self, name: str, process: str, objs: Sequence[Object], *, copied: bool = False) -> None:
        """Note that a process keeps objects, unless there is an error in the place of one."""
        if any(obj.fails for obj in objs):
            return
        own = [obj for obj in objs if obj.source == process and not copied]
        parts = {part for obj in own for part in (obj.value, *self._value(obj.value).parts)}
        empty = all(obj.empty for obj in objs)
        self._values.append(Value(name, process, None, bool(own), parts, empty))

    def _get(self) -> None:
        fails = self._chance(0.1)
        if objs := [obj for obj in self._some_objects() if not obj.empty and obj.fails == fails]:
            process = self._process_for(objs[0])
            through_store = self._chance(0.3 if self._traits.one_sided else 0.7)
            timeout = self._one_of((None, USERS_TIMEOUT))
            step = Get(next(self._value_names), process, tuple(obj.name for obj in objs), timeout, through_store)
            self.steps.append(step)
            if self._can_get(process, objs, through_store):
                self._receive(step.value, process, objs, copied=through_store)

    def _can_get(self, process: str, objs: Sequence[Object], through_store: bool) -> bool:
        if through_store:
            return not any(obj.fails or obj.source == DRIVER for obj in objs)
        return self._traits.one_sided or all(obj.source == process for obj in objs)

    def _get_into_buffers(self) -> None:
        objs = [obj for obj in self._objects if obj.shape is Shape.LIST]
        if not objs:
            return
        obj = self._one_of(objs)
        process = self._process_for(obj)
        fits = tuple(Fit) if self._traits.fits_buffers else (Fit.FEWER, Fit.SHORTER, Fit.OTHER_DTYPE)
        buffers, fit = next(self._value_names), self._one_of(fits)
        got = next(self._value_names)
        self.steps += [
            MakeBuffers(buffers, process, obj.name, fit),
            Get(got, process, (obj.name,), buffers=buffers),
            Look(process, buffers),
        ]

    def _get_onto(self) -> None:
        if objs := [obj for obj in self._objects if not obj.empty]:
            obj, devices = self._one_of(objs), ("cpu", "meta") if self._traits.fits_buffers else ("meta",)
            self.steps.append(GetOnto(next(self._value_names), obj.name, self._one_of(devices)))

    def _change(self) -> None:
        """Only tensors that their process has made: others may be read-only."""
        values = [
            value
            for value in self._values
            if (value.shape is not None or value.of_own_object) and value.process in (*self._alive(), DRIVER)
        ]
        if values:
            value = self._one_of(values)
            self.steps.append(Change(value.process, value.name))

    def _drop(self) -> None:
        if self._objects:
            self.steps.append(self._dropped(self._one_of(self._objects)))

    def _dropped(self, obj: Object) -> Drop:
        self._objects.remove(obj)
        return Drop(obj.name)

    def _wait_freed(self) -> None:
        """A process notices whether an object holds the first tensor of a value."""
        values = [
            value
            for value in self._values
            if value.shape is Shape.LIST and value.process in (*self._alive(), DRIVER) and not value.spoilt
        ]
        if values:
            value = self._one_of(values)
            held = any(obj.value and value.name in self._tensors_of(obj) for obj in self._objects)
            self.steps.append(WaitFreed(value.process, value.name, A_MOMENT if held else LONG))

    def _tensors_of(self, obj: Object) -> set[str]:
        return {obj.value, *self._value(obj.value).parts}

    # --- several at a time ----------------------------------------------------------------------------------------

    def _at_once(self) -> None:
        """Several receivers of objects that exist, and references that are dropped as soon as they have been passed."""
        if not self._objects:
            return
        steps: list[Simple] = []
        used: dict[str, Object] = {}
        for actor in self._random.sample(self._alive(), len(self._alive())):
            objs = self._some_objects(2)
            used |= {obj.name: obj for obj in objs}
            steps.append(self._consumed(actor, objs))
        steps += [self._dropped(obj) for obj in used.values() if self._chance(0.4)]
        self.steps.append(Together(tuple(steps)))

    def _while_busy(self) -> None:
        """Objects that are passed on, dropped or both before they exist."""
        actor = self._actor()
        values = [self._build(actor, self._one_of(_WITH_TENSORS)) for _ in range(self._random.randint(1, 2))]
        made_before = len(self._objects)
        steps: list[Simple] = [self._returned(value) for value in values]
        if self._chance(0.2):
            steps.append(self._failing(actor))
        late = self._objects[made_before:]
        for _ in range(self._random.randint(0, 3)):
            obj = self._one_of(late)
            others = self._some_objects(1) if self._chance(0.3) else []
            steps.append(self._consumed(self._actor(), [obj, *others]))
        if self._traits.one_sided and self._chance(0.3):
            obj = self._one_of(late)
            getting = Get(next(self._value_names), DRIVER, (obj.name,))
            steps.append(getting)
            self._receive(getting.value, DRIVER, [obj])
        steps += [self._dropped(obj) for obj in late if self._chance(0.4)]
        self.steps.append(Together(tuple(steps), busy=actor))

    # --- what goes wrong ------------------------------------------------------------------------------------------

    def _trouble(self) -> None:
        """One call of the transport goes wrong, and is made at once, so that it is certain which one it is."""
        troubles = [self._trouble_at_asking, self._trouble_at_extract, self._trouble_at_communicator]
        if self._traits.one_sided:
            troubles += [self._trouble_at_receive, self._trouble_at_get, self._trouble_at_get]
        elif self._traits.can_abort:
            troubles += [self._trouble_at_send, self._trouble_at_send]
        if self._traits.ray.frees_in_spite:
            troubles.append(self._trouble_at_collect)
        self._one_of(troubles)()

    def _trouble_at_asking(self) -> None:
        value = self._build(self._actor())
        self.steps.append(Trouble(DRIVER, "actor_has_tensor_transport"))
        self.steps.append(self._returned(value, fails=True))
        # Ray raises where the task is called, so what the ray engine has for the error is no object with tensors.
        self._objects[-1].shape, self._objects[-1].empty = None, True

    def _trouble_at_extract(self) -> None:
        value = self._build(self._actor())
        value.spoilt = True
        self.steps.append(Trouble(value.process, "extract_tensor_transport_metadata"))
        self.steps.append(self._returned(value, fails=True))

    def _trouble_at_communicator(self) -> None:
        self._consume_in_trouble(DRIVER, "get_communicator_metadata")

    def _trouble_at_receive(self) -> None:
        self._consume_in_trouble("", "recv_multiple_tensors")

    def _trouble_at_send(self) -> None:
        self._consume_in_trouble("", "send_multiple_tensors", at_source=True)

    def _consume_in_trouble(self, process: str, method: str, *, at_source: bool = False) -> None:
        objs = [obj for obj in self._unharmed() if obj.source not in (DRIVER, self._dead)]
        if not objs:
            return
        obj = self._one_of(objs)
        actor = self._one_of([actor for actor in self._alive() if actor != obj.source])
        self.steps.append(Trouble(process or (obj.source if at_source else actor), method))
        self.steps.append(self._consumed(actor, [obj], errs=True))

    def _trouble_at_get(self) -> None:
        process = self._process()
        objs = [obj for obj in self._unharmed() if obj.source != process]
        if not objs:
            return
        method = self._one_of(("get_communicator_metadata", "fetch_multiple_tensors", "wait_fetch_complete"))
        may_time_out = method != "get_communicator_metadata" and self._chance(0.5)
        mishap = Mishap.TIME_OUT if may_time_out else Mishap.RAISE
        obj, timeout = self._one_of(objs), self._one_of((None, USERS_TIMEOUT))
        self.steps.append(Trouble(process, method, mishap))
        self.steps.append(Get(next(self._value_names), process, (obj.name,), timeout))

    def _trouble_at_collect(self) -> None:
        objs = [obj for obj in self._objects if not obj.fails and obj.source != self._dead]
        if objs:
            obj = self._one_of(objs)
            self.steps.append(Trouble(obj.source, "garbage_collect"))
            self.steps.append(self._dropped(obj))

    def _kill_or_restart(self) -> None:
        if self._dead:
            self.steps.append(Restart(self._dead))
            self._values = [value for value in self._values if value.process != self._dead]
            self._objects = [obj for obj in self._objects if obj.source != self._dead]
            self._dead = ""
            self._return()
        elif self._chance(0.15):
            self._dead = self._actor()
            self.steps.append(Kill(self._dead))
            self._objects = [
                obj for obj in self._objects if obj.owner != self._dead and not (obj.empty and obj.source == self._dead)
            ]

    def _register(self) -> None:
        self.steps.append(Register(self._one_of(tuple(Candidate))))

    # --- choosing -------------------------------------------------------------------------------------------------

    def _alive(self) -> list[str]:
        return [actor for actor in ACTORS if actor != self._dead]

    def _actor(self) -> str:
        return self._one_of(self._alive())

    def _process(self) -> str:
        return self._one_of((DRIVER, *self._alive()))

    def _unharmed(self) -> list[Object]:
        return [obj for obj in self._objects if not obj.fails and not obj.empty]

    def _process_for(self, obj: Object) -> str:
        """Who gets an object. Ray 2.60 cannot give an actor a reference to what was never made."""
        return DRIVER if obj.fails else self._process()

    def _some_objects(self, most: int = 3) -> list[Object]:
        return [self._one_of(self._objects) for _ in range(self._random.randint(1, most))] if self._objects else []

    def _value(self, name: str) -> Value:
        return next((value for value in self._values if value.name == name), Value(name, "", None))

    def _one_of(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability
