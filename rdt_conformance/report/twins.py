"""How a failing example differs from the one most like it that went well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdt_conformance.report.diagram import SHORT
from rdt_conformance.results import Failure, Step

_MOST_LINES = 5
"""Of either example."""


def differences(failure: Failure) -> Iterator[str]:
    """What was chosen otherwise there, and the first call that went another way; nothing if none went well."""
    twin = failure.twin
    if twin is None:
        return
    yield from _some("instead of: ", [line for line in failure.example if line not in twin.example])
    yield from _some("it had:     ", [line for line in twin.example if line not in failure.example])
    parting = parting_step(failure)
    if parting is not None:
        here, there = parting
        yield f"step {here.number} was:  {_told(there) if there else 'not there'}"


def parting_step(failure: Failure) -> tuple[Step, Step | None] | None:
    """The first step of a failing history that the one that went well has not, and what that has in its place."""
    there: Sequence[Step] = failure.twin.history if failure.twin else failure.history
    for at, step in enumerate(failure.history):
        other = there[at] if at < len(there) else None
        if other is None or not _alike(step, other):
            return step, other
    return None


def _some(label: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (f"{label}{line}" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield f"{label}… and {len(lines) - _MOST_LINES} more"


def _alike(one: Step, other: Step) -> bool:
    same_call = (one.process, one.what, one.obj_id) == (other.process, other.what, other.obj_id)
    return same_call and one.outcome.partition(":")[0] == other.outcome.partition(":")[0]


def _told(step: Step) -> str:
    name, bracket, rest = step.what.partition("(")
    call = f"{SHORT.get(name, name)}{bracket}{rest} {step.obj_id}".rstrip()
    return f"{step.process}  {call}  -> {step.outcome or '…'}"
