"""Source and receiver in processes of their own: what one transport does to them is no trouble for the next."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from rdt_conformance.bench import places, process
from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.local import LocalPair, Receiver
from rdt_conformance.bench.loop import Plan, measure
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.raw_peers import why_not_raw
from rdt_conformance.target import resolve

FAULTY = """
import os
import threading
from reference_transports.cross_memory import CrossMemoryTransport
from reference_transports.inline import InlineTransport


class EndsTheSource(InlineTransport):
    def extract_tensor_transport_metadata(self, obj_id, tensors):
        os._exit(3)


class NotWithinOne(InlineTransport):
    def extract_tensor_transport_metadata(self, obj_id, rdt_object):
        if "," in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1"):
            raise ValueError("both on one")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


class Carries(InlineTransport):
    pass


class EndsTheReceiver(InlineTransport):
    def recv_multiple_tensors(self, *args, **kwargs):
        os._exit(4)


class WritesOnce(CrossMemoryTransport):
    written = False

    def recv_multiple_tensors(self, obj_id, metadata, comm, buffers=None):
        if not WritesOnce.written:
            WritesOnce.written = True
            return super().recv_multiple_tensors(obj_id, metadata, comm, buffers)
        return buffers


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


def test_what_lay_in_a_target_buffer_before_does_not_pass_for_what_was_to_come(pair: LocalPair, faulty: str) -> None:
    load = flat(100_000, 3, buffers=True)
    sound = pair.contender("transport", "cross-memory", load)
    lazy = pair.contender("transport", f"{faulty}WritesOnce", load)
    wrong = []
    for turn in range(1, 7):
        for contender in (lazy, sound):
            contender.cycle(2 * turn + (contender is sound))
            wrong.append(contender.wrong(2 * turn + (contender is sound)) != "")
    sound.close()
    lazy.close()
    assert wrong == [False, False, *[True, False] * 5], "it wrote in its first turn"


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


def test_a_group_of_actors_is_what_two_processes_cannot_have(pair: LocalPair) -> None:
    plan = Plan(seconds=0.1, epochs=1, soak=0)
    series = measure({"ray:GLOO": partial(pair.contender, "transport", "ray:GLOO", flat(1000))}, plan)["ray:GLOO"]
    assert not series.samples
    assert "NeedsRayError: it needs a group of actors, and Ray has no part in this" in series.problem


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


class Sees:
    """In a process that is asked what it sees."""

    def gpus(self) -> str | None:
        """As the variable says."""
        return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("here", "gpu", "there"),
    [
        (None, None, None),
        (None, 1, "1"),
        ("", 1, "1"),
        ("5,2", None, "5,2"),
        ("5, 2,3", 1, "2"),
        ("GPU-aa,GPU-bb", 1, "GPU-bb"),
    ],
)
def test_a_process_sees_one_of_the_gpus_or_all(
    here: str | None, gpu: int | None, there: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if here is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", here)
    other = Remote("other", gpu=gpu)
    try:
        assert other.call(other.make(Sees), "gpus") == there
    finally:
        other.close()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == here


def test_a_gpu_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(ValueError, match="there is no GPU number 1 among CUDA_VISIBLE_DEVICES=3"):
        Remote("other", gpu=1)


@pytest.mark.parametrize("apart", [False, True])
def test_the_source_alone_is_elsewhere(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    receiver = Receiver(apart)
    try:
        assert receiver._source.call(receiver._source.make(Sees), "gpus") == ("7" if apart else "4,7")
    finally:
        receiver._source.close()


@pytest.mark.parametrize(
    ("name", "device", "apart", "reason"),
    [
        ("raw:NIXL", "cpu", False, ""),
        ("raw:NIXL", "cuda", False, ""),
        ("raw:NIXL", "cuda", True, ""),
        ("raw:GLOO", "cpu", False, ""),
        ("raw:GLOO", "cuda", True, "it moves CPU memory only"),
        ("raw:NCCL", "cpu", False, "it moves GPU memory only"),
        ("raw:NCCL", "cuda", False, "it needs two GPUs, one for each side"),
    ],
)
def test_where_a_library_carries(name: str, device: str, apart: bool, reason: str) -> None:
    assert why_not_raw(name, device, apart=apart) == reason


@pytest.mark.parametrize(
    ("spec", "device", "gpus", "said"),
    [
        ("EndsTheSource", "cpu", 2, ""),
        ("EndsTheSource", "cuda", 1, ""),
        ("EndsTheSource", "cuda", 2, ""),  # wherever it is
        ("NotWithinOne", "cuda", 2, "ValueError: both on one"),
        ("NotWithinOne", "cuda", 1, ""),
        ("Carries", "cuda", 2, ""),
    ],
)
def test_whether_it_carries_within_one_gpu_is_tried(
    spec: str, device: str, gpus: int, said: str, faulty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of the CPU stands for that of the GPU."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    real = LocalPair.contender
    monkeypatch.setattr(
        LocalPair,
        "contender",
        lambda self, kind, name, load: real(self, kind, name, dataclasses.replace(load, device="cpu")),
    )
    target = resolve("inline")
    devices = dataclasses.replace(target.devices, value=(device,))
    target = dataclasses.replace(target, spec=f"{faulty}{spec}", devices=devices)
    assert places.why_not_within_one_gpu(target, 0) == said
