"""Source and receiver in processes of their own: what one transport does to them is no trouble for the next."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from rdt_conformance.bench import process
from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.local import LocalPair
from rdt_conformance.bench.loop import Plan, measure

FAULTY = """
import os
import threading
from reference_transports.inline import InlineTransport


class EndsTheSource(InlineTransport):
    def extract_tensor_transport_metadata(self, obj_id, tensors):
        os._exit(3)


class EndsTheReceiver(InlineTransport):
    def recv_multiple_tensors(self, *args, **kwargs):
        os._exit(4)


class Stuck(InlineTransport):
    def recv_multiple_tensors(self, *args, **kwargs):
        threading.Event().wait()
"""


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    path = tmp_path / "faulty_in_processes.py"
    path.write_text(FAULTY)
    return f"{path}:"


@pytest.fixture
def pair() -> Iterator[LocalPair]:
    pair = LocalPair()
    yield pair
    pair.close()


def test_who_brings_down_a_process_is_named_and_nothing_is_left(
    pair: LocalPair, faulty: str, others: set[psutil.Process]
) -> None:
    plan = Plan(seconds=0.4, epochs=1, soak=0)
    for name, said in (("EndsTheSource", "the source ended with status 3"), ("EndsTheReceiver", "status 4"), ("", "")):
        spec = f"{faulty}{name}" if name else "shared-memory"
        series = measure({spec: partial(pair.contender, "transport", spec, flat(1000))}, plan)[spec]
        assert said in series.problem
        assert bool(series.samples) == (not name)
    pair.close()
    left = set(psutil.Process().children(recursive=True)) - others
    assert not [child for child in left if "resource_tracker" not in " ".join(child.cmdline())]


def test_who_does_not_answer_is_given_up(pair: LocalPair, faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = pair.contender("transport", f"{faulty}Stuck", flat(10))
    monkeypatch.setattr(process, "PATIENCE_SECONDS", 0.5)
    with pytest.raises(process.ProcessGone, match="the receiver has not answered within 0 s"):
        stuck.cycle(1)
    monkeypatch.undo()
    assert pair.contender("ceiling", "memcpy", flat(10)).cycle(1).whole > 0
    with pytest.raises(process.ProcessGone, match="another contender brought down the process"):
        stuck.cycle(2)


@pytest.mark.parametrize("buffers", [False, True])
def test_a_library_by_itself_brings_every_byte_of_each_turn(pair: LocalPair, buffers: bool) -> None:
    peer = pair.contender("raw library", "raw:GLOO", flat(300_000, 3, buffers=buffers))
    for turn in range(1, 4):
        assert peer.cycle(turn).wait > 0
        assert peer.wrong(turn) == ""
    peer.close()
