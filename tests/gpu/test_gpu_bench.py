"""The machine's limits with GPU memory, and what is too large for it."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from rdt_conformance.bench.ceilings import ceiling, ceilings_for
from rdt_conformance.bench.cells import why_not
from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.transports import TransportContender

NO_SOURCE = cast(Remote, None)
GIB = 1 << 30


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


def test_what_does_not_fit_is_told() -> None:
    assert why_not(flat(GIB >> 4, device="cuda")) == ""
    _, total = torch.cuda.mem_get_info()
    assert "of memory" in (reason := why_not(flat(total, device="cuda"))) or "of the GPU's memory" in reason


def test_a_transport_of_gpu_memory_is_a_contender() -> None:
    source = Remote("source")
    try:
        load = flat(1 << 20, 3, device="cuda")
        contender: Any = TransportContender("reference_transports.faulty.gpus:ThroughHost", source, load)
        for turn in range(1, 4):
            contender.cycle(turn)
            assert contender.wrong(turn) == ""
        contender.close()
    finally:
        source.close()
