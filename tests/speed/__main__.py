"""How fast a transport is, as ratios: to a raw loop that moves the same bytes, and to another transport.

    python -m tests.speed shared-memory --floor=memcpy --peer=ray:NIXL --sizes=1M,64M --counts=1,1000

Source and receiver are two processes, without Ray; those of the other transport are stopped while it is not its turn.
The contenders take turns, of two cycles of which the second counts, in an order that is drawn anew for each round, so
that whatever else the machine does meets them all. A ratio is the median of the rounds' own ratios, with its 95 %
bootstrap interval, and the other's own median time; above 1 the transport is the faster one. What counts is extract +
recv: for a one-sided transport fetch and wait, for a two-sided one the receiver's wall time of a send and recv that
start together.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from .contenders import FLOORS, Contender, Options, Stages, Transport
from .source import CLOCKS, Load, Peer
from .stopped import Stopped

FEWEST_PAIRS = 30
HEAD = (
    "   size tensors buffers |    median    GB/s |     x floor                          |"
    "     x peer                           |"
    "   extract       recv         gc"
)


def main() -> None:
    """Measure every cell that was asked for, and print each as soon as it is known."""
    options = _options()
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    if options.apart:
        os.sched_setaffinity(0, cores[:1])
    print(f"{options.transport}; floor: {options.floor}; peer: {options.peer or 'none'}", end="; ")
    print(f"{options.clock} time; seed {options.seed}\n{HEAD}")
    there = cores[1:2] if options.apart else cores
    peer = Peer(there)
    try:
        for size, count, buffers in itertools.product(options.sizes, options.counts, options.buffers):
            if size < 4 * count:
                continue
            head = f"{_in_bytes(size):>7} {count:>7} {'yes' if buffers else 'no':>7} |"
            load, how = Load(size, count, options.seed), Options(buffers, options.clock)
            try:
                print(head, _cell(options, peer, load, how), flush=True)
                peer.forget()
            except Exception as error:
                print(head, f"no number: {type(error).__name__}: {error}", flush=True)
                peer.close()
                peer = Peer(there)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        peer.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.speed", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("transport", help="in any form that --transport of the suite takes")
    add("--floor", choices=[*FLOORS, "one"], default="memcpy", help="one: the transport itself, with a single tensor")
    add("--peer", help="another transport")
    add("--sizes", type=_list_of(_bytes_in), default="4,1M,16M,64M,256M", help="of all tensors together")
    add("--counts", type=_list_of(int), default="1,1000,10000", help="numbers of tensors")
    add("--buffers", type=_list_of(("no", "yes").index), default="yes,no", help="whether into target buffers")
    add("--clock", choices=[*CLOCKS], default="wall", help="cpu: processor time, for machines that do other things too")
    add("--apart", action="store_true", help="source and receiver on a core each: else the kernel may put both on one")
    add("--pairs", type=int, default=40, help=f"at least {FEWEST_PAIRS}")
    add("--seconds", type=float, default=60.0, help="for each cell, after which it ends with the pairs it has")
    add("--seed", type=int, default=int(time.time()))
    return parser.parse_args()


def _list_of(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(part) for part in text.split(",")]


def _bytes_in(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMG]?)", text).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def _in_bytes(size: int) -> str:
    shift, unit = next((shift, unit) for shift, unit in ((30, "G"), (20, "M"), (10, "K"), (0, "")) if size >> shift)
    return f"{size / (1 << shift):g} {unit}iB" if unit else f"{size} B"


def _cell(options: argparse.Namespace, peer: Peer, load: Load, how: Options) -> str:
    """A row of the table."""
    with ExitStack() as stack:
        contenders: list[Contender | Stopped] = []

        def enter(contender: Contender | Stopped) -> None:
            stack.callback(contender.close)
            contenders.append(contender)

        enter(Transport(options.transport, peer, load, how))
        if options.floor == "one":
            enter(Transport(options.transport, peer, replace(load, count=1), how))
        else:
            enter(FLOORS[options.floor](peer, load, how))
        if options.peer:
            enter(Stopped(options.peer, peer.cores, load, how))
        rounds = _rounds(contenders, options)
    own, *others = zip(*rounds, strict=True)
    median = float(np.median([stages.total for stages in own]))
    ratios = [_ratio(own, other, options.seed) for other in others]
    return " | ".join(
        [
            f"{_in_seconds(median)} {load.size / median / 1e9:7.3f}",
            *(f"{ratio:<36}" for ratio in [*ratios, ""][:2]),
            " ".join(
                _in_seconds(float(np.median([getattr(stages, name) for stages in own])))
                for name in ("extract", "recv", "gc")
            ),
        ]
    )


def _rounds(contenders: Sequence[Contender | Stopped], options: argparse.Namespace) -> list[list[Stages]]:
    """What each contender took in each round."""
    draw = np.random.default_rng(options.seed)
    turns = itertools.count(1)
    for contender in [*contenders, *contenders]:  # warm
        contender.cycle(next(turns), thorough=True)
    rounds: list[list[Stages]] = []
    deadline = time.monotonic() + options.seconds
    while len(rounds) < options.pairs and time.monotonic() < deadline:
        took: dict[int, Stages] = {}
        for index in draw.permutation(len(contenders)):
            contenders[index].cycle(next(turns), thorough=not rounds)  # its memory is back in the caches then
            took[index] = contenders[index].cycle(next(turns), thorough=False)
        rounds.append([took[index] for index in range(len(contenders))])
    for contender in contenders:
        contender.cycle(next(turns), thorough=True)
    if len(rounds) < FEWEST_PAIRS:
        raise TimeoutError(f"only {len(rounds)} pairs in {options.seconds:g} s")
    return rounds


def _ratio(own: Sequence[Stages], other: Sequence[Stages], seed: int) -> str:
    """How many times as fast as the other: the median of the pairs, with its 95 % bootstrap interval."""
    logs = np.log([theirs.total / ours.total for ours, theirs in zip(own, other, strict=True)])
    drawn = np.random.default_rng(seed).integers(0, len(logs), (4000, len(logs)))
    low, high = np.quantile(np.median(logs[drawn], axis=1), (0.025, 0.975))
    theirs = float(np.median([stages.total for stages in other]))
    return f"{np.exp(np.median(logs)):6.3f} [{np.exp(low):.3f}, {np.exp(high):.3f}] of {_in_seconds(theirs)}"


def _in_seconds(seconds: float) -> str:
    return f"{seconds * 1e3:7.3f} ms"


if __name__ == "__main__":
    main()
