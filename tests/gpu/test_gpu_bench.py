"""The machine's limits with GPU memory, what is too large for it, and libraries by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch

from rdt_conformance.bench.ceilings import ceiling, ceilings_for
from rdt_conformance.bench.cells import tensors, why_not
from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.contests import Contests
from rdt_conformance.bench.local import LocalPair
from rdt_conformance.bench.places import why_not_within_one_gpu
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.raw_peers import RAW_PEERS, why_not_installed
from rdt_conformance.bench.transports import TransportContender
from rdt_conformance.target import resolve

NO_SOURCE = cast(Remote, None)
GIB = 1 << 30
NCCL = "reference_transports.nccl:NcclTransport"
THROUGH_HOST = "reference_transports.faulty.gpus:ThroughHost"


@pytest.fixture
def pairs() -> Iterator[Callable[[bool], LocalPair]]:
    """Makes processes on one GPU, or on two."""
    made: list[LocalPair] = []

    def make(apart: bool) -> LocalPair:
        if apart and torch.cuda.device_count() < 2:
            pytest.skip("needs two GPUs")
        made.append(LocalPair(apart=apart))
        return made[-1]

    yield make
    for pair in made:
        pair.close()


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("name", ceilings_for("cuda"))
def test_a_limit_moves_all_bytes_and_waits_for_the_gpu(name: str, buffers: bool) -> None:
    limit = ceiling(name, NO_SOURCE, flat(64 << 20, 3, device="cuda", buffers=buffers))
    samples = []
    for turn in range(1, 6):
        samples.append(limit.cycle(turn))
        assert limit.wrong(turn) == ""
    bytes_per_second = (64 << 20) / min(sample.wait for sample in samples)
    assert 1e9 < bytes_per_second < 5e12, "no GPU is faster, and a copy that is not waited for would seem to be"


def test_what_does_not_fit_is_told(pairs: Callable[[bool], LocalPair]) -> None:
    free = pairs(False).ask("free_on_gpu")
    assert GIB < free <= torch.cuda.mem_get_info()[1]
    assert why_not(flat(GIB >> 4, device="cuda"), free) == ""
    assert "of memory" in (reason := why_not(flat(free, device="cuda"), free)) or "of the GPU's memory" in reason


def test_a_transport_of_gpu_memory_is_a_contender() -> None:
    source = Remote("source")
    try:
        load = flat(1 << 20, 3, device="cuda")
        contender: Any = TransportContender(THROUGH_HOST, source, load)
        for turn in range(1, 4):
            contender.cycle(turn)
            assert contender.wrong(turn) == ""
        contender.close()
    finally:
        source.close()


@pytest.mark.parametrize("buffers", [False, True], ids=["new memory", "into buffers"])
@pytest.mark.parametrize(("name", "apart"), [("raw:NIXL", False), ("raw:NIXL", True), ("raw:NCCL", True)])
def test_a_library_by_itself_brings_every_byte_of_each_turn(
    name: str, apart: bool, buffers: bool, pairs: Callable[[bool], LocalPair]
) -> None:
    if reason := why_not_installed(name):
        pytest.skip(reason)
    pair, size = pairs(apart), 64 << 20
    for _ in range(2):  # as a benchmark does: they are built anew in the same processes
        peer = pair.contender("raw library", name, flat(size, 3, device="cuda", buffers=buffers))
        seconds = []
        for turn in range(1, 8):
            seconds.append(peer.cycle(turn).wait)
            assert peer.wrong(turn) == ""
        assert 1e8 < size / min(seconds) < 5e12, "nothing is faster, and what is not waited for would seem to be"
        peer.close()


@pytest.mark.parametrize(("spec", "apart"), [(NCCL, True), (THROUGH_HOST, False), (THROUGH_HOST, True)])
def test_a_transport_is_carried_between_gpus_or_within_one(
    spec: str, apart: bool, pairs: Callable[[bool], LocalPair]
) -> None:
    contender = pairs(apart).contender("transport", spec, flat(1 << 20, 3, device="cuda"))
    for turn in range(1, 6):
        contender.cycle(turn)
        assert contender.wrong(turn) == ""
    contender.close()


def test_what_carries_nothing_within_one_gpu_is_found_out() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert why_not_within_one_gpu(resolve(NCCL, devices=("cuda",)), 0) != ""
    assert why_not_within_one_gpu(resolve(THROUGH_HOST, devices=("cuda",)), 0) == ""


@pytest.mark.parametrize("apart", [False, True], ids=["one GPU", "between GPUs"])
def test_each_library_has_numbers_or_a_reason(apart: bool) -> None:
    if apart and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    peers = [name for name in RAW_PEERS if not why_not_installed(name)]
    target = resolve(THROUGH_HOST, devices=("cuda",))
    contests = Contests(target, peers, None, gated=False, seconds=1, seed=0, bench=lambda _: pytest.fail("none"))
    try:
        result = contests.measure("a benchmark", tensors(1 << 20, apart=apart))
    finally:
        contests.close()
    problems = {row.name.removeprefix("peer "): row.problem for row in result.rows if row.role == "peer"}
    expected = {
        "raw:NIXL": "",
        "raw:GLOO": "it moves CPU memory only",
        "raw:NCCL": "" if apart else "it needs two GPUs, one for each side",
    }
    assert problems == {name: expected[name] for name in peers}
    assert result.rows[0].verified > 0 and not result.rows[0].problem
