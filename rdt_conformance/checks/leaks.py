"""Whether anything is left behind: by something that is repeated, and of tensors that nobody should need any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rdt_conformance.engines.base import Hung
from rdt_conformance.observe import Leak, growth
from rdt_conformance.observe.resources import MEMORIES
from rdt_conformance.payloads.watching import Lifetimes

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.world import Held

Cycle: TypeAlias = Callable[[], object]
Repeat: TypeAlias = Callable[[int], object]
"""Repeats something so many times."""

_SECONDS = 40
"""How long a suspicion is followed, in multiples of a check's own time."""
_SAMPLE = 5
"""How often a part is repeated to tell whether a leak grows with it."""


def expect_no_growth(
    case: Case,
    cycle: Cycle | Mapping[str, Cycle],
    clause: str,
    payload_bytes: int = 0,
    control: Cycle | None = None,
    each: str = "",
) -> None:
    """Repeat a cycle, drop everything after each turn, and break `clause` if anything grows for good.

    Args:
        case: where the cycle plays.
        cycle: leaves nothing under way; or the parts that a cycle consists of, by names that tell where a leak is.
        clause: what a leak breaks.
        payload_bytes: how much a cycle, or each of its parts, sends; 0 does not judge memory.
        control: what grows with this as well is another clause's leak, and not counted here, nor the memory it takes.
        each: what every cycle does, for the message, if the check alone does not tell.
    """
    parts = cycle if isinstance(cycle, Mapping) else {"": cycle}
    # Of several parts, each makes objects in every cycle: fewer cycles will do.
    fewest, share = (3, 1) if len(parts) == 1 else (1, 3)
    run_all = list(parts.values())
    _repeat(case, run_all, 1, clause)  # by now every process has built its transport
    began = time.monotonic()
    _repeat(case, run_all, 2, clause)
    pace = (time.monotonic() - began) / 2
    most_cycles = case.budget.most_cycles // share
    seconds = max(_SECONDS * case.budget.seconds, 10 * pace, min(2 * pace * most_cycles, case.budget.suspicion_seconds))
    grown = growth(
        lambda cycles: _repeat(case, run_all, cycles, clause),
        case.world.watch(memory=bool(payload_bytes)),
        cycles=max(fewest, min(case.budget.cycles // share, int(seconds / pace / 10))),
        most_cycles=most_cycles,
        deadline=time.monotonic() + seconds,
        payload_bytes=payload_bytes,
    )
    if not grown.judged:
        raise case.cannot(f"only {grown.cycles} cycles could be run in {seconds:.3g} s, too few to tell a leak")
    elsewhere = []
    if control is not None:
        elsewhere = [leak for leak in grown.leaks if adds(case, [leak], _repeating(case, control, clause))]
    leaks = [leak for leak in grown.leaks if leak not in elsewhere and not (elsewhere and leak.kind in MEMORIES)]
    if leaks:
        where = growing_with(case, leaks, {name: _repeating(case, part, clause) for name, part in parts.items()})
        case.require(False, clause, "; ".join(leak.sentence for leak in leaks) + (f"; {each}" if each else "") + where)


def expect_gone(case: Case, lifetimes: Held, clause: str, since: str) -> None:
    """Break `clause` if tensors stay in memory.

    Args:
        case: where they were built.
        lifetimes: of the tensors, as a process keeps them; see `PayloadKind.tracked`.
        clause: what it breaks to keep them.
        since: what happened to them, for the message.
    """
    give_up = time.monotonic() + case.patience.abort
    while (left := lifetimes.apply(Lifetimes.alive)) and time.monotonic() < give_up:
        time.sleep(0.01)  # no event tells that a reference is gone
    case.require(
        not left, clause, f"{left} of the source's tensors are still in memory {case.patience.abort:g} s after {since}"
    )


def _repeat(case: Case, parts: Sequence[Cycle], times: int, clause: str) -> None:
    for _ in range(times):
        case.world.history.clear()
        for part in parts:
            part()
        if not case.world.reset(case.patience.call):
            raise case.hung(Hung("freeing what a cycle made", case.patience.call, case.world.stacks()), clause)


def growing_with(case: Case, leaks: Sequence[Leak], parts: Mapping[str, Repeat]) -> str:
    """With which of the parts of a cycle it is that something grows, for a message; empty if with none or all.

    Args:
        case: where the cycle plays.
        leaks: what grows.
        parts: by their names, what repeats each of them.
    """
    guilty = [name for name, repeat in parts.items() if adds(case, leaks, repeat)]
    return f"; grows with {', '.join(guilty)}" if 0 < len(guilty) < len(parts) else ""


def _repeating(case: Case, part: Cycle, clause: str) -> Repeat:
    return lambda times: _repeat(case, [part], times, clause)


def adds(case: Case, leaks: Sequence[Leak], repeat: Repeat) -> bool:
    """Whether one part alone makes something grow that leaks."""
    watch = case.world.watch(memory=False)
    before = watch.settled().countable()
    repeat(_SAMPLE)
    after = watch.settled().countable()
    return any(after.get(leak.kind, 0) - before.get(leak.kind, 0) > _SAMPLE // 2 for leak in leaks)
