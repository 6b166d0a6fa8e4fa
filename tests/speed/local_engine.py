"""How many whole transfers a second the local engine makes: produce, pass, compare nothing, free; with `inline`.

    python -m tests.speed.local_engine

First with lanes that run as the system lets them, then with lanes that go on one at a time, as a seed has it.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does for the tests, which share this one

from check_run import bench_of

from rdt_conformance.engines.reference.schedule import Order, Stop
from rdt_conformance.payloads import kind_for
from reference_transports.inline import InlineTransport

_TURNS = 400
_ROUNDS = 9


class AnyOrder(Order):
    """Chance has it who goes on."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def choose(self, stops: Sequence[Stop]) -> Stop:
        """One of those that can."""
        return self._draw.choice(stops)


def main() -> None:
    """Measure and print both."""
    world = bench_of(InlineTransport, torch.Tensor).new_world()
    source, destination = world.actors(2)
    payload = kind_for(torch.Tensor).simple(256)

    def transfer() -> None:
        ref = source.produce(payload)
        destination.consume(ref).result(20).drop()
        ref.drop()

    def in_any_order() -> None:
        with world.in_order(AnyOrder(1), ()):
            for _ in range(_TURNS):
                transfer()

    def freely() -> None:
        for _ in range(_TURNS):
            transfer()

    for name, turns in (("as they come", freely), ("one lane at a time", in_any_order)):
        rates = [_rate(turns, world.history.clear) for _ in range(_ROUNDS)]
        low, middle, high = statistics.quantiles(rates, n=4)
        print(f"{name}: {middle:,.0f} transfers a second, quartiles {low:,.0f} and {high:,.0f}")
    world.close()


def _rate(turns: Callable[[], None], clear: Callable[[], None]) -> float:
    clear()
    began = time.perf_counter()
    turns()
    return _TURNS / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
