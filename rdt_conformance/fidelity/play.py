"""Plays a program in a world, and notes what every step came to and which calls of the transport it made."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rdt_conformance.engines.base import Hung, Lane, Pending, origin_of
from rdt_conformance.engines.reference.user_code import nothing
from rdt_conformance.fidelity import values
from rdt_conformance.fidelity.programs import Program
from rdt_conformance.fidelity.steps import (
    ACTORS,
    DRIVER,
    Build,
    Change,
    Consume,
    Drop,
    Fail,
    Get,
    GetOnto,
    Kept,
    Kill,
    Look,
    MakeBuffers,
    Put,
    Register,
    Restart,
    Return,
    Simple,
    Step,
    Together,
    Trouble,
    Unblocked,
    WaitFreed,
)

if TYPE_CHECKING:
    from rdt_conformance.engines.rdt import Ref
    from rdt_conformance.engines.world import Held, Process, World
    from rdt_conformance.payloads.base import Payload, PayloadKind
    from rdt_conformance.results import Step as Call

T = TypeVar("T")

_WITHOUT_OBJECT = ("actor_has_tensor_transport", "get_communicator_metadata")
"""The calls whose arguments do not say which object they are about."""
_REFUSING = ("actor_has_tensor_transport", "extract_tensor_transport_metadata")
_HALVES = ("send_multiple_tensors", "recv_multiple_tensors")
_ON_ITS_OWN_LANE = "abort_transport"
"""Compared on its own: nothing says where among the calls on other lanes it comes."""
_TIMEOUT = re.compile(r"timeout=([0-9.e+]+)")
_RAISED = re.compile(r"raised (\w+).*", re.DOTALL)
_MEANT = (values.Deliberate.__name__, TimeoutError.__name__)
"""The errors of a transport that mean something to Ray, or that the program has asked for."""
_AS_RAY_GIVES = 30.0
"""Seconds: a timeout that is longer is Ray's own."""
_PASSED_BACK = re.compile("passed back to the actor that created it|goes back to .* which made it")


@dataclass
class Play:
    """What a program came to on one engine."""

    outcomes: list[tuple[str, str]] = field(default_factory=list)
    """Each thing that could be seen, and what it was, in the order of the program."""
    calls: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Process and object -> the calls of the transport in order, each with its lane and what it returned."""
    others: dict[str, list[str]] = field(default_factory=dict)
    """Process -> the calls that name no object, sorted: Ray sends the objects of one task on in no certain order."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """Process -> the objects that it sent and received on its system lane, in order; empty if that order is open."""
    stacks: str = ""
    """Where everything stood when a step was stuck."""
    clean: bool = True
    """Whether the world is as it was before."""


def play(program: Program, world: World, kind: PayloadKind, device: str, seconds: float) -> Play:
    """Play a program in a world in which nothing is left of earlier ones.

    Args:
        program: what to play.
        world: where.
        kind: of the tensors.
        device: of the tensors.
        seconds: after which a step is taken for stuck; the rest of the program is not played then.
    """
    player = _Player(world, kind, device, seconds)
    world.history.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            for number, step in enumerate(program.steps, 1):
                player.play(number, step)
        except Hung as hung:
            player.result.clean, player.result.stacks = False, hung.stacks
        player.end(ordered=program.is_ordered)
    backs = sum(bool(_PASSED_BACK.search(str(warning.message))) for warning in warned)
    player.result.outcomes.append(("warnings that an object goes back to who made it", str(backs)))
    return player.result


class _Missing(Exception):
    """An earlier step has not brought what this one needs."""


class _Known(dict[str, T]):
    """What a program has made so far, by its names."""

    def __missing__(self, name: str) -> T:
        raise _Missing(f"there is no {name}")


class _Player:
    def __init__(self, world: World, kind: PayloadKind, device: str, seconds: float) -> None:
        self.result = Play()
        self._seconds = seconds
        self._world = world
        self._kind = kind
        self._device = device
        self._processes: dict[str, Process] = {DRIVER: world.driver, **dict(zip(ACTORS, world.actors(3), strict=True))}
        self._values: _Known[Held] = _Known()
        self._refs: _Known[Ref] = _Known()
        self._names: dict[str, str] = {}
        self._payloads: _Known[Payload] = _Known()
        self._made_of: _Known[str] = _Known()
        self._refused: set[str] = set()
        """Processes whose transport refuses the next object; the driver's refuses that of any actor."""
        self._dead = ""
        self._troubled: set[str] = set()

    def play(self, number: int, step: Step) -> None:
        """Play one step to its end."""
        if not isinstance(step, Together):
            self._note(f"{number}. {step}", self._begin(step))
            if isinstance(step, Return):
                self._wait_until_made(step)
            return
        with ExitStack() as stack:
            if step.busy:
                stack.enter_context(self._processes[step.busy].busy())
            ends = [(f"{number}. {each}", self._begin(each)) for each in step.steps]
            if step.busy:
                # On the ray engine this lane is where tasks are submitted.
                self._processes[DRIVER].run(nothing, lane=Lane.SYSTEM).result()
        for what, end in ends:
            self._note(what, end)
        for each in step.steps:
            if isinstance(each, Return):
                self._wait_until_made(each)

    def _note(self, what: str, ended: Callable[[], str]) -> None:
        try:
            outcome = ended()
        except Hung as hung:
            self.result.outcomes.append((what, f"no answer within {hung.seconds:g} s"))
            raise
        if outcome:
            self.result.outcomes.append((what, outcome))

    # --- steps ----------------------------------------------------------------------------------------------------

    def _begin(self, step: Simple) -> Callable[[], str]:
        """Begin a step; what is returned waits for its end and tells what came of it."""
        try:
            return self._try_to_begin(step)
        except _Missing as missing:
            reason = f"not played: {missing}"
            return lambda: reason

    def _try_to_begin(self, step: Simple) -> Callable[[], str]:
        processes, held = self._processes, self._values
        match step:
            case Return():
                return self._produce(step.obj, step.actor, held[step.value], step.value)
            case Fail():
                return self._produce(step.obj, step.actor, values.Deliberate("the task itself"))
            case Put():
                putting = processes[step.process].put(held[step.value])
                return lambda: self._came_to(putting, lambda ref: self._know(step.obj, ref, step.value))
            case Consume():
                named = {f"key{number}": self._refs[obj] for number, obj in enumerate(step.named, 1)}
                taking = processes[step.actor].consume(*(self._refs[obj] for obj in step.objs), **named)
                return lambda: self._came_to(taking, lambda value: self._receive(step.value, value))
            case Get():
                getting = processes[step.process].get(
                    *(self._refs[obj] for obj in step.objs),
                    timeout=step.timeout,
                    through_store=step.through_store,
                    buffers=held[step.buffers] if step.buffers else None,
                )
                return lambda: self._came_to(getting, lambda value: self._receive(step.value, value))
            case GetOnto():
                onto = processes[DRIVER].get_onto(self._refs[step.obj], step.device)
                return lambda: self._came_to(onto, lambda value: self._receive(step.value, value))
            case WaitFreed():
                waiting = processes[step.process].wait_freed(held[step.value], step.seconds)
                return lambda: self._came_to(waiting, lambda _: "freed", step.seconds)
            case Kept():
                obj_id = next(obj_id for obj_id, name in self._names.items() if name == step.obj)
                self._world.come_to_rest()
                kept = processes[step.process].run(values.kept, obj_id)
                return lambda: self._came_to(kept, str)
            case Unblocked():
                passing = processes[step.actor].run(nothing, lane=Lane.SYSTEM)
                return lambda: "yes" if passing.wait(step.seconds) else "no"
            case Look():
                return lambda: held[step.value].apply(values.describe)
            case Register():
                trying = processes[DRIVER].run(values.register, self._world.transport, step.candidate)
                return lambda: self._came_to(trying, str)
        self._do(step)
        return str

    def _do(self, step: Simple) -> None:
        """What is over when it has begun, and has nothing to show."""
        processes = self._processes
        match step:
            case Build():
                number = len(self._payloads)
                payload = self._payloads[step.value] = self._kind.simple(64 + number, count=2, seed=number)
                made = processes[step.process].make(values.make, payload, self._device, step.shape)
                self._values[step.value] = made
            case MakeBuffers():
                payload = self._payloads[self._made_of[step.obj]]
                arguments = (self._kind, payload, self._device, step.fit)
                self._values[step.value] = processes[step.process].make(values.make_buffers, *arguments)
            case Change():
                self._values[step.value].apply(values.change)
            case Drop():
                self._refs[step.obj].drop()
                del self._refs[step.obj]
            case Trouble():
                self._world.come_to_rest()  # what is still being freed is not what goes wrong
                arguments = (self._world.transport, step.method, step.mishap)
                processes[step.process].run(values.make_trouble, *arguments).result()
                self._troubled.add(step.process)
                if step.method in _REFUSING:
                    self._refused.add(step.process)
            case Kill():
                self._world.come_to_rest()
                processes[step.actor].kill()
                self._dead = step.actor
            case Restart():
                self._world.restart(processes[step.actor])
                self._dead = ""

    def _produce(self, obj: str, actor: str, what: Held | Exception, value: str = "") -> Callable[[], str]:
        try:
            ref = self._processes[actor].produce(what)
        except Exception as error:
            outcome = described(error)
            return lambda: outcome
        self._know(obj, ref, value)
        return str

    def _know(self, obj: str, ref: Ref, value: str) -> str:
        self._refs[obj] = ref
        self._names[ref.obj_id] = obj
        self._made_of[obj] = value
        return ""

    def _receive(self, name: str, held: Held) -> str:
        self._values[name] = held
        return held.apply(values.describe)

    def _wait_until_made(self, step: Return) -> None:
        """From now on it is certain that the object exists, or that it never will."""
        if self._refused & {step.actor, DRIVER}:
            self._refused -= {step.actor, DRIVER}
        elif step.obj in self._refs:
            self._processes[DRIVER].metadata_of(self._refs[step.obj]).wait(self._seconds)

    def _came_to(self, pending: Pending[T], tell: Callable[[T], str], longer: float = 0.0) -> str:
        error = pending.error(self._seconds + longer)
        return tell(pending.result()) if error is None else described(error)

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self, *, ordered: bool) -> None:
        """Drop every reference, wait for what comes of that, and take in the calls."""
        world = self._world
        if self._troubled and self.result.clean:
            world.come_to_rest()
        ended = [self._processes[name].run(values.end_troubles) for name in self._troubled if name != self._dead]
        for each in ended:
            each.wait(self._seconds)
        self._refs.clear()
        self._values.clear()
        if self.result.clean and not world.reset():
            self.result.clean = False
        if self._dead and self.result.clean:
            world.restart(self._processes[self._dead])
        self._take_in(world.history.steps(self._names), ordered=ordered)

    def _take_in(self, history: Sequence[Call], *, ordered: bool) -> None:
        calls: dict[tuple[str, str], list[str]] = defaultdict(list)
        others: dict[str, list[str]] = defaultdict(list)
        order: dict[str, list[str]] = defaultdict(list)
        own = {process.name: name for name, process in self._processes.items()}
        for call in history:
            process = own[call.process]
            if call.what.startswith(_WITHOUT_OBJECT):
                others[process].append(_worded(call))
                continue
            aside = f" {_ON_ITS_OWN_LANE}" if call.what.startswith(_ON_ITS_OWN_LANE) else ""
            calls[process, call.obj_id + aside].append(_worded(call))
            if ordered and call.lane == Lane.SYSTEM and call.what.startswith(_HALVES):
                order[process].append(f"{call.what.split('_')[0]} {call.obj_id}")
        self.result.calls, self.result.order = dict(calls), dict(order)
        self.result.others = {process: sorted(which) for process, which in others.items()}


def described(error: BaseException) -> str:
    """An error by its kind, and by the call of the transport that it comes from."""
    origin = origin_of(error)
    kind = type(error).__name__
    return f"{origin.method} raised {_of_a_call(kind)}" if origin is not None else kind


def _of_a_call(kind: str) -> str:
    """The kind of an error that a call of the transport raised.

    Which of its own errors a transport raises, say when it is aborted, may depend on which end notices first.
    """
    return kind if kind in _MEANT else "an error of its own"


def _worded(call: Call) -> str:
    what = _TIMEOUT.sub(_whose_timeout, call.what)
    outcome = _RAISED.sub(lambda raised: f"raised {_of_a_call(raised[1])}", call.outcome)
    outcome = outcome if call.ended is not None else "never came back"
    return f"{call.lane}: {what} -> {outcome}"


def _whose_timeout(timeout: re.Match[str]) -> str:
    return "Ray's timeout" if float(timeout[1]) > _AS_RAY_GIVES else "the user's timeout"
