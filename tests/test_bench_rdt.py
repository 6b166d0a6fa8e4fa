"""Whole RDT as a contender, on the local engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.loop import STAGES
from rdt_conformance.bench.rdt import RdtContender, Way
from rdt_conformance.engines.base import Patience
from rdt_conformance.engines.local import LocalEngine
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.world import World
from rdt_conformance.payloads import kind_for
from reference_transports.shared_memory import SharedMemoryTransport
from reference_transports.tcp import TcpTransport

KIND = kind_for(torch.Tensor)
LOAD = flat(100_000, 3)


def _world(transport: type) -> Iterator[World]:
    engine = LocalEngine(Registration("IT", ("cpu",), transport, torch.Tensor))
    world = engine.new_world()
    yield world
    world.close()
    engine.close()


@pytest.fixture
def one_sided() -> Iterator[World]:
    yield from _world(SharedMemoryTransport)


@pytest.fixture
def two_sided() -> Iterator[World]:
    yield from _world(TcpTransport)


def _check(contender: RdtContender) -> None:
    for turn in (1, 2):
        sample = contender.cycle(turn)
        assert contender.wrong(turn) == ""
        assert sum(getattr(sample, stage) for stage in STAGES) == pytest.approx(sample.whole, rel=0.02)
        assert sample.ready == sample.end_to_end == pytest.approx(sample.whole - sample.create)
        assert 0 < sample.control < sample.ready


@pytest.mark.parametrize("way", ["passed to a task", "fetched by a get", "through the object store"])
def test_every_way_is_measured_and_verified(one_sided: World, way: Way) -> None:
    _check(RdtContender(one_sided, KIND, LOAD, way, Patience()))
    contender = RdtContender(one_sided, KIND, LOAD, way, Patience())
    contender.cycle(3)
    assert contender.wrong(4) != ""


def test_of_a_transport_with_two_sides_too(two_sided: World) -> None:
    _check(RdtContender(two_sided, KIND, LOAD, "passed to a task", Patience()))


def test_what_does_not_come_back_is_an_error(one_sided: World, monkeypatch: pytest.MonkeyPatch) -> None:
    contender = RdtContender(one_sided, KIND, LOAD, "passed to a task", Patience())
    release = threading.Event()
    monkeypatch.setattr(SharedMemoryTransport, "recv_multiple_tensors", lambda *args: release.wait())
    monkeypatch.setattr(contender, "_seconds", 0.2)
    with pytest.raises(TimeoutError, match=r"consume on actor2 did not come back within 0.2 s"):
        contender.cycle(1)
    release.set()
