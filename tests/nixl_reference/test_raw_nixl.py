"""NIXL by itself, as benchmarks have it for a peer: here, where its threads disturb nobody."""

from __future__ import annotations

import pytest

from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.local import LocalPair
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.raw_gpu_libraries import GpuNixl

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("buffers", [False, True])
def test_it_brings_every_byte_of_each_turn(buffers: bool) -> None:
    pair = LocalPair()
    try:
        peer = pair.contender("raw library", "raw:NIXL", flat(300_000, 3, buffers=buffers))
        for turn in range(1, 4):
            assert peer.cycle(turn).wait > 0
            assert peer.wrong(turn) == ""
        peer.close()
    finally:
        pair.close()


@pytest.mark.parametrize("buffers", [False, True])
def test_it_does_so_as_with_gpu_memory(buffers: bool) -> None:
    """Host memory stands for that of GPUs."""
    source = Remote("source")
    try:
        peer = GpuNixl(source, flat(300_000, 3, buffers=buffers))
        for turn in range(1, 4):
            assert peer.cycle(turn).wait > 0
            assert peer.wrong(turn) == ""
        peer.close()
    finally:
        source.close()
