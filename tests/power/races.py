"""How many rounds it takes to meet a race: threads that go on one at a time, in chosen orders, against free ones.

    python -m tests.power.races --seeds=5 --rounds=2000

A round is one play of what a check of interleavings does. With chosen orders, and small examples drawn by the seed, the
check is as the suite runs it. With free threads it is the same check, whose body is played again and again while the
system switches between the threads as it likes. Printed is the median over the seeds of the rounds up to the first that
broke the clause, or how many seeds broke nothing in so many rounds.
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
        chosen = [_rounds(name, transport, seed, None) for seed in range(1, options.seeds + 1)]
        free = [_rounds(name, transport, seed, options.rounds) for seed in range(1, options.seeds + 1)]
        print(f"| `{transport.__name__}` | `{name}` | {_told(chosen)} | {_told(free)} |", flush=True)


def _told(rounds: list[int | None]) -> str:
    met = [each for each in rounds if each is not None]
    never = f"{len(rounds) - len(met)} of {len(rounds)} seeds met nothing" if len(met) < len(rounds) else ""
    return "; ".join(part for part in (f"{median(met):g}" if met else "", never) if part)


def _rounds(name: str, transport: type[Any], seed: int, free: int | None) -> int | None:
    """Until it was broken, or None. `free`: so many rounds at most, with free threads."""
    count = Count()
    spec = check_named(name).__rdt_check__
    again = check(*spec.clauses, interleaves=True)(count.counting(spec.body))
    bench = bench_of(transport, torch.Tensor)
    bench.seed = seed
    bench.budget = dataclasses.replace(bench.budget, shrink_seconds=0.0)
    with pytest.MonkeyPatch.context() as patch:
        in_order = Case.in_order

        def counted(self: Case, order: Order) -> AbstractContextManager[None]:
            count.rounds += 1
            return in_order(self, order) if free is None else nullcontext()

        patch.setattr(Case, "in_order", counted)
        if free is not None:
            bench.budget = dataclasses.replace(bench.budget, examples=free, seconds=60.0)

            def repeated(self: Case) -> Iterator[None]:
                for _ in range(free // 20):
                    if count.rounds < free:
                        self.world.history.clear()
                        yield None

            patch.setattr(Case, "interruptions", repeated)
        run_check(bench, again)
    return count.until_broken


if __name__ == "__main__":
    main()
