"""What a user requires of a transport besides holding its clauses: a level, and capabilities (``--rdt-require``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rdt_conformance.capabilities import Capabilities
from rdt_conformance.ladder import LADDER, Rung
from rdt_conformance.options import LEVEL
from rdt_conformance.verdict_types import Observation, Obstacle
from rdt_conformance.words import few


@dataclass(frozen=True)
class Requirements:
    """The names that were given, and what the transport claims."""

    names: tuple[str, ...]
    """Out of `rdt_conformance.options.REQUIREMENTS`."""
    capabilities: Capabilities


@dataclass(frozen=True)
class Reached:
    """How far a transport got."""

    level: Rung | None
    next_level: Rung | None
    obstacles: Sequence[Obstacle]


def missing(
    required: Requirements, reached: Reached, facts: Sequence[Observation], selected_all: bool
) -> Iterator[str]:
    """One line for each requirement that is not met.

    A run of picked checks cannot tell a level, nor what was not observed; then nothing is said of them.

    Args:
        required: what is asked for.
        reached: how far the transport got.
        facts: what was observed.
        selected_all: False if the user picked checks.
    """
    for name in required.names:
        if name.startswith(LEVEL):
            why = _missing_level(LADDER[int(name.removeprefix(LEVEL)) - 1], reached) if selected_all else ""
        elif name == "target-buffers":
            why = _missing_buffers(required.capabilities, facts, selected_all)
        else:
            why = _missing_capability(name, required.capabilities)
        if why:
            yield f"{name} is required: {why}"


def _missing_level(wanted: Rung, reached: Reached) -> str:
    if reached.level is not None and reached.level.number >= wanted.number:
        return ""
    got = (
        f'level {reached.level.number}, "{reached.level.name}", was reached'
        if reached.level
        else "no level was reached"
    )
    if reached.next_level is None or reached.next_level.number > wanted.number:
        return f'{got}, and nothing of level {wanted.number}, "{wanted.name}", is asked of this transport'
    obstacles = few([f"{obstacle.clause} ({obstacle.why})" for obstacle in reached.obstacles])
    return f"{got}; in the way of level {reached.next_level.number}: {obstacles}"


def _missing_capability(name: str, capabilities: Capabilities) -> str:
    wanted: Mapping[str, tuple[bool, str]] = {
        "one-sided": (capabilities.one_sided, "is_one_sided() says that it is two-sided"),
        "two-sided": (not capabilities.one_sided, "is_one_sided() says that it is one-sided"),
        "abort": (capabilities.can_abort, "can_abort_transport() says that it cannot"),
        "own-fetch": (
            capabilities.own_fetch and capabilities.one_sided,
            "it has no fetch_multiple_tensors and wait_fetch_complete of its own that Ray would call",
        ),
        "cuda": ("cuda" in capabilities.devices, f"its devices in this run are {', '.join(capabilities.devices)}"),
    }
    has, why_not = wanted[name]
    return "" if has else why_not


def _missing_buffers(capabilities: Capabilities, facts: Sequence[Observation], selected_all: bool) -> str:
    if not (capabilities.one_sided and capabilities.takes_buffers):
        return "Ray hands target buffers only to one-sided transports of torch tensors"
    seen: set[Any] = {value for fact in facts if fact.what == "target buffers" for value in fact.value}
    if "refused" in seen:
        return "it refused some"
    return "" if seen or not selected_all else "none were seen to be filled"
