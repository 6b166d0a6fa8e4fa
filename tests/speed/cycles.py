"""Whether transports hold more and more: very many cycles of create, transfer and free, with counts on the way.

    python -m tests.speed.cycles inline shared-memory cross-memory socket-pull tcp gloo nixl

Source and receiver are two processes, without Ray. Each object has tensors of its own, of sizes drawn at random; every
other one is received into target buffers where the transport takes some. What both processes hold is counted twenty
times, in pieces and in bytes; exits with 1 if anything grows for good, or anything arrives wrongly.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from typing import Any

import torch

from rdt_conformance.observe import Watch
from rdt_conformance.observe.drift import Level, drift

from .contenders import fetch, receive
from .source import Peer, build

_COUNTS = 20
_SIZES = (1, 750, 25_000)
"""Floats of a tensor."""
_SENT = 0
"""So that growth is not forgiven for how much was sent: a megabyte for good is a leak."""


class Objects:
    """Makes, sends and frees objects, in the source's process."""

    def __init__(self, target: str) -> None:
        self._transport = build(target)
        self._watch = Watch([self._transport])
        self._tensors: list[torch.Tensor] = []

    def create(self, turn: int) -> Any:
        """The metadata of a new object."""
        self._tensors = tensors(turn)
        return self._transport.extract_tensor_transport_metadata(f"turn-{turn}", self._tensors)

    def send(self, metadata: Any, communicator: Any) -> None:
        """Take part in a two-sided transfer."""
        self._transport.send_multiple_tensors(self._tensors, metadata, communicator)

    def free(self, turn: int, metadata: Any) -> None:
        """Free it."""
        self._transport.garbage_collect(f"turn-{turn}", metadata, self._tensors)
        self._tensors = []

    def held(self) -> dict[str, int]:
        """What this process holds."""
        return held(self._watch)


def main() -> None:
    """Do the cycles on one transport after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.speed.cycles", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("transports", nargs="+", help="in any form that --transport of the suite takes")
    parser.add_argument("--cycles", type=int, default=100_000)
    options = parser.parse_args()
    if options.cycles < _COUNTS:
        parser.error(f"{_COUNTS} cycles are the fewest")
    torch.set_num_threads(1)
    sys.exit(not all([_flat(target, options.cycles) for target in options.transports]))


def _flat(target: str, cycles: int) -> bool:
    """Do them, and tell; whether nothing grew."""
    began, levels = time.monotonic(), {"source": list[Level](), "receiver": list[Level]()}
    peer = Peer(range(os.cpu_count() or 1))
    try:
        receiver, source = build(target), peer.make(Objects, target)
        watch = Watch([receiver])
        for turn in range(1, cycles + 1):
            _cycle(peer, receiver, source, turn)
            if turn * _COUNTS % cycles < _COUNTS:
                for process, figures in (("source", peer.call(source, "held")), ("receiver", held(watch))):
                    levels[process].append(Level(time.monotonic() - began, turn, _SENT, 0, figures, {}))
    finally:
        peer.close()
    leaks = {process: drift(counts) for process, counts in levels.items()}
    flat = not any(leaks.values())
    print(f"{target}: {cycles:,} cycles in {time.monotonic() - began:.0f} s: {'flat' if flat else 'it grows'}")
    for process, counts in levels.items():
        for kind in counts[-1].figures:
            found = [level.figures.get(kind, 0) for level in counts]
            if len(set(found)) > 1:
                between = f"{min(found):,} to {max(found):,}"
                print(f"  {process}, {kind}: {found[0]:,} at first, {between}, {found[-1]:,} at last")
        for leak in leaks[process]:
            print(f"  {process}: {leak.sentence}")
    sys.stdout.flush()
    return flat


def _cycle(peer: Peer, receiver: Any, source: int, turn: int) -> None:
    """The life of one object."""
    metadata, expected = peer.call(source, "create", turn), tensors(turn)
    communicator = receiver.get_communicator_metadata(None, None, receiver.tensor_transport_backend())
    takes_buffers = receiver.is_one_sided() and turn % 2
    buffers = [torch.zeros_like(tensor) for tensor in expected] if takes_buffers else None
    call = receiver, f"turn-{turn}", metadata, communicator, buffers
    if receiver.is_one_sided():
        received = fetch(*call)
    else:
        peer.begin(source, "send", metadata, communicator)
        received = receive(*call)
        peer.end()
    if len(received) != len(expected) or not all(map(torch.equal, received, expected)):
        raise SystemExit(f"something else arrived in cycle {turn}")
    peer.call(source, "free", turn, metadata)


def tensors(turn: int) -> list[torch.Tensor]:
    """Those of an object; the same in both processes."""
    chooser = random.Random(turn)
    return [torch.full((chooser.choice(_SIZES),), float(turn)) for _ in range(chooser.choice((1, 2, 5)))]


def held(watch: Watch) -> dict[str, int]:
    """What is held in pieces and in bytes, once nothing is going away any more."""
    resources = watch.settled()
    return resources.countable() | resources.memories()


if __name__ == "__main__":
    main()
