"""The transport under test, set up on one engine: what a check is run on."""

from __future__ import annotations

import functools
import hashlib
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hypothesis.core import encode_failure

from rdt_conformance.checks.budget import PROFILES, Budget
from rdt_conformance.checks.carries import Carries, find_out
from rdt_conformance.checks.pace import Pace
from rdt_conformance.engines.base import Patience, Spread
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.worker import AS_IN_RAY, Settings
from rdt_conformance.engines.world import World
from rdt_conformance.file_limit import allow_many_files
from rdt_conformance.options import MINUTES, SOAK
from rdt_conformance.replay import Replay
from rdt_conformance.results import CheckResult
from rdt_conformance.target import Target, type_name

if TYPE_CHECKING:
    from rdt_conformance.engines.engine import Engine
    from rdt_conformance.payloads.base import Recipe

_FEWEST_SECONDS = 2.0
"""Patience with a transport that has hung again and again,"""
_TIMES = 3.0
"""unless this many times what something took that came back is more."""


class Bench:
    """One target on one engine, for a whole run.

    Args:
        target: the transport.
        engine: the engine's name.
        start: starts it.
        profile: one of `budget.PROFILES`.
        seed: fixes every choice of the run.
        alone: only this one check runs, to replay it: time limits are lifted, so that a slower machine gets as far.
        minutes: how long a soak works.
        later: another engine of this run has gone before, on which every kind of payload was tried.
        checks: how many of them will run.
    """

    def __init__(
        self,
        target: Target,
        engine: str,
        start: Callable[[str, Registration], Engine],
        profile: str,
        seed: int,
        *,
        alone: bool = False,
        minutes: float = MINUTES,
        later: bool = False,
        checks: int = 1,
    ) -> None:
        allow_many_files()
        self.target = target
        self.engine = engine
        self.profile = profile
        self.seed = seed
        self.alone = alone
        self.minutes = minutes
        self.every_kind = not later or profile == "thorough"
        """Whether what goes through all kinds of payload leaves none out: with processes that takes seconds."""
        self.budget: Budget = PROFILES[profile] if engine == "local" else PROFILES[profile].for_processes()
        self.pace = Pace(checks, self.budget.all_seconds)
        self.kind = target.payload_kind
        self.devices: tuple[str, ...] = target.devices.value
        """The types of device whose memory is sent."""
        self.device: str = self.devices[0]
        """The one that the example at hand sends the memory of."""
        self.patience = Patience.at_first(engine, target.gives_up_after)
        self.record: Callable[[CheckResult], None] = lambda result: None
        self._start = start
        self._engine = start(engine, self.registration)
        self._world: World | None = None
        self._hangs = 0
        self._longest = 0.0
        """Seconds that anything took so far which came back."""
        self._spread = Spread.NODES
        self._transfers_before = 0
        self.replay: Replay | None = None
        """The one example that is to be run again, instead of all that the budget allows."""
        self.kept_by = ""
        """The clause of the check that left a world for the next example."""
        self.refusal_told = False
        """A check has said that nothing can be sent (`Carries.refusal`); it takes no more than one."""

    @property
    def registration(self) -> Registration:
        """The target as the reference RDT registers it."""
        target = self.target
        return Registration(
            target.name.value.upper(), tuple(target.devices.value), target.transport_class, target.data_type.value
        )

    @functools.cached_property
    def carries(self) -> Carries:
        """What the transport carries at all. From now on one that stays within a node, or a GPU, may do so."""
        found = find_out(self)
        self._spread = found.spread
        return found

    @property
    def gpus(self) -> int:
        """Over how many GPUs the actors of a node are spread; 0 if none of them has one."""
        return self._engine.gpus

    def lack_of_gpus(self, count: int) -> str:
        """Why not each of `count` actors can send to each; empty if it can."""
        if not self.gpus or count <= self.gpus or not (apart_only := self.carries.apart_only):
            return ""
        return f"needs {count} GPUs, and there are {self.gpus} (it does not carry within one: {apart_only})"

    def beside(self, engine: str) -> Bench:
        """The same transport on another engine; close it in the end."""
        return Bench(self.target, engine, self._start, self.profile, self.seed)

    def seed_for(self, check: str) -> int:
        """A seed that depends on the run and the check alone, so that a check replays the same on its own."""
        digest = hashlib.sha256(f"{self.seed}:{check}:{self.engine}".encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def replay_command(self, check: str, choices: tuple[Any, ...] = ()) -> str:
        """What shows a failure of a check again: of a soak with the same seed, of any other with the same choices."""
        target = self.target
        asked = [
            f" {option}={shlex.quote(value)}"
            for fact, option, value in (
                (target.devices, "--rdt-devices", ",".join(target.devices.value)),
                (target.data_type, "--rdt-data-type", type_name(target.data_type.value)),
            )
            if fact.learnt == option
        ]
        asked += [f" --rdt-minutes={self.minutes:g}"] if self.profile == SOAK else []
        encoded = encode_failure(choices).decode()
        token = Replay(check, self.engine, target.nodes, self.profile, self.seed, encoded, target.depends_on())
        return f"pytest --transport={shlex.quote(target.spec)}{''.join(asked)} --rdt-replay={token.encode()}"

    def new_world(self, settings: Settings = AS_IN_RAY, *, used: bool = True, spread: Spread | None = None) -> World:
        """A fresh world; `release` it in the end.

        Args:
            settings: what Ray would read from its environment.
            used: its actors have touched the transport once.
            spread: how far apart they are; None: as far as the transport does not refuse it.
        """
        first_use = self._first_use() if used else None
        return self._engine.new_world(settings, first_use, spread=spread or self._spread)

    def acquire(self) -> World:
        """A clean world for one example: a fresh one, or that of an earlier example that ended well.

        If a process of it has died by itself since, it still has the history of that example.
        """
        died = self._world.died() if self._world is not None else {}
        if died and not any(died.values()):
            self._forget()
        world, self._world = self._world or self.new_world(), None
        if not died:
            world.history.clear()
        return world

    def release(self, world: World, *, again: bool) -> None:
        """Give a world back. `again`: it is as clean as it was, and the next example may have it."""
        if again:
            self._forget()  # one that was adopted meanwhile, as some checks find out late what is carried
            self._world = world
        else:
            self._discard(world)

    def adopt(self, world: World) -> None:
        """Have the next example in a clean world that was made for something else, in which all actors were used.

        Where worlds cost nothing it has one of its own, and so has a soak.
        """
        if not self._engine.keeps_worlds or self.profile == SOAK:
            self._discard(world)
            return
        self._forget()
        world.first_use = self._first_use()
        self._world = world

    def _first_use(self) -> Recipe:
        return self.kind.simple(16)

    def refresh(self) -> None:
        """Forget the world of earlier examples, unless it is too dear for that."""
        if not self._engine.keeps_worlds:
            self._forget()

    @property
    def transfers(self) -> int:
        """Transfers that brought their tensors so far."""
        return self._transfers_before + (self._world.history.transfers if self._world is not None else 0)

    def _forget(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            self._discard(world)

    def _discard(self, world: World) -> None:
        self._transfers_before += world.history.transfers
        world.close()

    def note_hang(self) -> None:
        """A transport that has hung before is given less time: the run has failed already and should end."""
        self._hangs += 1
        self._be_patient()

    def note_wait(self, seconds: float) -> None:
        """Something came back after so long: what takes its time, as to connect may, has not hung."""
        if seconds > self._longest:
            self._longest = seconds
            self._be_patient()

    def _be_patient(self) -> None:
        if self._hangs:
            call = max(_FEWEST_SECONDS, Patience.call / self._hangs, min(Patience.call, _TIMES * self._longest))
            call += self.target.gives_up_after
            self.patience = Patience(call=call, abort=max(_FEWEST_SECONDS, Patience.abort / self._hangs))

    def close(self) -> None:
        """End the run on this engine."""
        self._forget()
        self._engine.close()
