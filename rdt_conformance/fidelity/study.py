"""Plays programs on the reference and on Ray, and says what differs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from rdt_conformance import interrupts
from rdt_conformance.engines.cluster.groups import groups_for
from rdt_conformance.engines.reference.worker import Settings
from rdt_conformance.fidelity.compare import differences
from rdt_conformance.fidelity.limits import limits_for
from rdt_conformance.fidelity.play import Play, play
from rdt_conformance.fidelity.programs import Program, Traits
from rdt_conformance.fidelity.shorten import shortened
from rdt_conformance.fidelity.steps import Area
from rdt_conformance.ray_interface import installed_interface

if TYPE_CHECKING:
    from rdt_conformance.checks.bench import Bench
    from rdt_conformance.engines.world import World

SHOWN = 3
"""Sentences and programs that are shown of many."""


@dataclass(frozen=True)
class Difference:
    """A program, made as short as it gets, that does not come to the same on both engines."""

    program: Program
    sentences: tuple[str, ...]
    again: bool
    """Whether it was so when the program was played once more."""
    stacks: str = ""
    """Where everything stood if a step was stuck."""

    def __str__(self) -> str:
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.program.steps, 1))
        once = "" if self.again else " (once, and not again)"
        stuck = f"\n{self.stacks}" if self.stacks else ""
        return f"{steps}\n  differs{once}: " + "\n  differs: ".join(self.sentences[:SHOWN]) + stuck


@dataclass
class Findings:
    """What a study has found."""

    programs: int = 0
    areas: Counter[Area] = field(default_factory=Counter)
    """How many programs have to do with each row of the table of what RDT does."""
    differences: list[Difference] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    """Ray's limits that the installed version still has."""
    limits_gone: list[str] = field(default_factory=list)

    @property
    def certain(self) -> list[Difference]:
        """The differences that came again. One that did not may come from a transport that is not always the same."""
        return [difference for difference in self.differences if difference.again]

    def facts(self) -> dict[str, Any]:
        """For the report."""
        facts: dict[str, Any] = {
            "fidelity programs": self.programs,
            "fidelity areas": [f"{area.value} ({self.areas[area]})" for area in Area if self.areas[area]],
            "fidelity differences": len(self.certain),
        }
        if passing := [str(difference) for difference in self.differences if not difference.again]:
            facts["fidelity differences that did not come again"] = passing
        if self.limits or self.limits_gone:
            facts["Ray limits that still hold"] = self.limits
            facts["Ray limits that are gone"] = self.limits_gone
        return facts


def summary(findings: Findings) -> str:
    """The differences that came again, in words."""
    certain = findings.certain
    more = f"\n\n… and {len(certain) - SHOWN} more" if len(certain) > SHOWN else ""
    return (
        f"the reference RDT and Ray differ in {len(certain)} of {findings.programs} programs:\n\n"
        + "\n\n".join(map(str, certain[:SHOWN]))
        + more
    )


class Study:
    """Compares two engines, one transport on both.

    Args:
        reference: the transport on the reference, in processes of its own.
        ray: the transport on Ray's own RDT.
    """

    def __init__(self, reference: Bench, ray: Bench) -> None:
        self._benches = (reference, ray)
        target = ray.target
        self.traits = Traits(
            one_sided=bool(target.one_sided.value),
            can_abort=bool(target.can_abort.value),
            fits_buffers=target.data_type.value is torch.Tensor,
            survives=groups_for(ray.registration) is None,
            driver_puts=not ray.carries.driver_refusal,
            ray=installed_interface(),
        )

    def compare(self, programs: Iterable[Program], seconds: float) -> Findings:
        """Play programs one after the other; none begins after `seconds`."""
        findings, deadline = Findings(), time.monotonic() + seconds
        for program in programs:
            interrupts.check()
            if time.monotonic() > deadline:
                break
            findings.programs += 1
            findings.areas.update(program.areas(self.traits))
            plays = self._play_both(program)
            if found := differences(*plays):
                stacks = "\n".join(played.stacks for played in plays if played.stacks)
                findings.differences.append(self._look_closer(program, found, stacks))
        return findings

    def check_limits(self, findings: Findings) -> None:
        """Find out which of Ray's limits still hold. What Ray keeps for ever goes with the worlds that this is in."""
        apart = [bench.acquire() for bench in self._benches]
        soon = False
        try:
            for limit in limits_for(self.traits):
                interrupts.check()
                if limit.gives_up and not soon:
                    soon = True
                    self._renew(apart, limit.settings)
                plays = [
                    play(limit.program, world, bench.kind, bench.devices[0], bench.patience.call)
                    for world, bench in zip(apart, self._benches, strict=True)
                ]
                where = findings.limits if differences(*plays) else findings.limits_gone
                where.append(f"{limit.name} ({limit.issue})" if limit.issue else limit.name)
                if not all(each.clean for each in plays):
                    self._renew(apart, limit.settings)
        finally:
            for bench, world in zip(self._benches, apart, strict=True):
                bench.release(world, again=False)

    def _renew(self, worlds: list[World], settings: Settings) -> None:
        for number, bench in enumerate(self._benches):
            bench.release(worlds[number], again=False)
            worlds[number] = bench.new_world(settings)

    def _differences(self, program: Program) -> list[str]:
        return differences(*self._play_both(program))

    def _play_both(self, program: Program) -> tuple[Play, Play]:
        reference, ray = self._benches
        return self._play(reference, program), self._play(ray, program)

    def _play(self, bench: Bench, program: Program) -> Play:
        world, clean = bench.acquire(), False
        try:
            played = play(program, world, bench.kind, bench.devices[0], bench.patience.call)
            clean = played.clean
        finally:
            bench.release(world, again=clean)
        return played

    def _look_closer(self, program: Program, found: list[str], stacks: str) -> Difference:
        """Play it again, and take away what does not matter, as long as the rest still differs."""
        if not self._differences(program):
            return Difference(program, tuple(found), again=False, stacks=stacks)
        smallest = shortened(program, lambda shorter: bool(self._differences(shorter)))
        return Difference(smallest, tuple(self._differences(smallest) or found), again=True, stacks=stacks)
