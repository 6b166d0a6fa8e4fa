"""Makes a program shorter that stays legal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from rdt_conformance.fidelity.programs import Program
from rdt_conformance.fidelity.steps import (
    Build,
    Consume,
    Fail,
    Get,
    GetOnto,
    Kill,
    MakeBuffers,
    Put,
    Restart,
    Return,
    Simple,
    Step,
    Together,
    Trouble,
)

MOST_TRIES = 40


def shortened(program: Program, still: Callable[[Program], bool]) -> Program:
    """The program without the steps that `still` does not need, as far as some tries go."""
    tries = 0
    while True:
        for shorter in _without_one(program):
            tries += 1
            if still(shorter):
                program = shorter
                break
            if tries >= MOST_TRIES:
                return program
        else:
            return program


def _without_one(program: Program) -> Iterator[Program]:
    """The program without one of its steps, from the last to the first, and without what cannot be without that."""
    steps = program.steps
    for number in reversed(range(len(steps))):
        step = steps[number]
        if not isinstance(step, Restart):
            before = steps[:number]
            if before and isinstance(before[-1], Trouble):
                before = before[:-1]
            yield _legal((*before, *steps[number + 1 :]), made_by(step), killed=isinstance(step, Kill))
        if isinstance(step, Together):
            for inner in reversed(range(len(step.steps))):
                fewer = dataclasses.replace(step, steps=step.steps[:inner] + step.steps[inner + 1 :])
                yield _legal((*steps[:number], fewer, *steps[number + 1 :]), made_by(step.steps[inner]))


def _legal(steps: tuple[Step, ...], gone: set[str], *, killed: bool = False) -> Program:
    """Leave out whatever needs something that is gone, and trouble that would come to another call than it was for."""
    left: list[Step] = []
    for step in steps:
        if isinstance(step, Together):
            inside: list[Simple] = []
            for each in step.steps:
                if _needs(each) & gone:
                    gone |= made_by(each)
                else:
                    inside.append(each)
            if inside:
                left.append(dataclasses.replace(step, steps=tuple(inside)))
        elif _needs(step) & gone or (killed and isinstance(step, Restart)):
            gone |= made_by(step)
            if left and isinstance(left[-1], Trouble):
                left.pop()
        else:
            left.append(step)
    return Program(tuple(left))


def made_by(step: Step) -> set[str]:
    """The names of what a step makes."""
    if isinstance(step, Together):
        return {name for each in step.steps for name in made_by(each)}
    match step:
        case Return() | Fail() | Put():
            return {step.obj}
        case Build() | MakeBuffers() | Consume() | Get() | GetOnto():
            return {step.value}
    return set()


def _needs(step: Simple) -> set[str]:
    """The names of what a step uses."""
    fields = ("obj", "objs", "named", "value", "buffers")
    used: set[str] = set()
    for field in fields:
        what = getattr(step, field, "")
        used |= set(what) if isinstance(what, tuple) else {what}
    return used - made_by(step) - {""}
