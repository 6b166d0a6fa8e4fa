"""How many rounds it takes to meet a race: threads that go on one at a time, in chosen orders, against free ones.

    python -m tests.power.races --seeds=5 --rounds=2000

A round is one play of what a check of interleavings does. With chosen orders, and examples drawn by the seed, the check
is as the suite runs it. With free threads each of its examples is played five times, and the whole check again and
again with other seeds, while the system switches between the threads as it likes. Printed is the median over the seeds
of the rounds up to the first that broke the clause, or in how many rounds none did.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does for the tests, which share this

from check_run import bench_of, check_named, run_check
from test_interleavings import CAUGHT

from rdt_conformance.checks import check
from rdt_conformance.checks.case import Case
from rdt_conformance.checks.verdicts import Broken
from rdt_conformance.engines.reference.schedule import Order

_PLAYS = 5
"""Of each example, with free threads."""


class Count:
    """The rounds of one run of a check."""

    def __init__(self) -> None:
        self.rounds = 0
        self.until_broken: int | None = None

    def counting(self, body: Callable[[Case], None]) -> Callable[[Case], None]:
        """The same body, which notes at which round it was broken first."""

        def counted(case: Case) -> None:
            try:
                body(case)
            except Broken:
                self.until_broken = self.until_broken or self.rounds
                raise

        counted.__name__ = body.__name__
        counted.__module__ = body.__module__
        return counted


def main() -> None:
    """Count for each race, and print a line of a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.power.races", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2_000, help="with free threads, for each seed")
    options = parser.parse_args()
    print("| race | check | rounds, chosen orders | rounds, free threads |\n| --- | --- | --- | --- |")
    for name, transport, _ in CAUGHT:
        chosen = [_chosen(name, transport, seed) for seed in range(1, options.seeds + 1)]
        free = [_free(name, transport, seed, options.rounds) for seed in range(1, options.seeds + 1)]
        print(f"| `{transport.__name__}` | `{name}` | {_told(chosen)} | {_told(free)} |", flush=True)


def _told(counts: list[Count]) -> str:
    met = [count.until_broken for count in counts if count.until_broken is not None]
    never = [count.rounds for count in counts if count.until_broken is None]
    told = [f"{median(met):g}"] if met else []
    if never:
        told.append(f"not met by {len(never)} of {len(counts)} seeds, in {min(never)} rounds each")
    return "; ".join(told)


def _chosen(name: str, transport: type[Any], seed: int) -> Count:
    """As the suite does it."""
    count = Count()
    with pytest.MonkeyPatch.context() as patch:
        in_order = Case.in_order

        def counted(self: Case, order: Order) -> AbstractContextManager[None]:
            count.rounds += 1
            return in_order(self, order)

        patch.setattr(Case, "in_order", counted)
        _play(name, transport, seed, count)
    return count


def _free(name: str, transport: type[Any], seed: int, rounds: int) -> Count:
    """Until it was broken, or for so many rounds."""
    count = Count()

    def some(case: Case) -> Iterator[None]:
        for _ in range(_PLAYS):
            case.world.history.clear()
            yield None

    def free(case: Case, order: Order) -> AbstractContextManager[None]:
        count.rounds += 1
        return nullcontext()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "in_order", free)
        patch.setattr(Case, "interruptions", some)
        for turn in range(rounds):  # each is a round at least
            if count.until_broken is not None or count.rounds >= rounds:
                break
            _play(name, transport, 1_000 * seed + turn, count)
    return count


def _play(name: str, transport: type[Any], seed: int, count: Count) -> None:
    spec = check_named(name).__rdt_check__
    again = check(*spec.clauses, interleaves=True)(count.counting(spec.body))
    bench = bench_of(transport, torch.Tensor)
    bench.seed = seed
    bench.budget = dataclasses.replace(bench.budget, shrink_seconds=0.0)
    run_check(bench, again)
    bench.close()


if __name__ == "__main__":
    main()
