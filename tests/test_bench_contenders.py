"""What is measured: contents, transports, ceilings and counters, with source and receiver in this one process."""

from __future__ import annotations

import dataclasses
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from suite_run import ROOT

from rdt_conformance.bench import ceilings, raw_gpu_libraries, raw_libraries
from rdt_conformance.bench.ceilings import CEILINGS, ceilings_for
from rdt_conformance.bench.contents import Contents, Load, as_bytes, flat, read_first
from rdt_conformance.bench.copies import copies
from rdt_conformance.bench.gpu_ceilings import GPU_CEILINGS, DeviceCopy, FromHost
from rdt_conformance.bench.loop import STAGES
from rdt_conformance.bench.patterns import BothWays, FanOut, UnderBulk
from rdt_conformance.bench.transports import TransportContender

FAULTY = """
from reference_transports.cross_memory import CrossMemoryTransport
from reference_transports.inline import InlineTransport


class OneByteInHundred(InlineTransport):
    received = 0

    def recv_multiple_tensors(self, *args, **kwargs):
        tensors = super().recv_multiple_tensors(*args, **kwargs)
        OneByteInHundred.received += 1
        if OneByteInHundred.received % 100 == 0:
            tensors[0][70] ^= 1
        return tensors


class WrongAtSecond(InlineTransport):
    received = 0

    def recv_multiple_tensors(self, *args, **kwargs):
        tensors = super().recv_multiple_tensors(*args, **kwargs)
        WrongAtSecond.received += 1
        if WrongAtSecond.received % 2 == 0:
            tensors[0][70] ^= 1
        return tensors


class Stale(InlineTransport):
    first = None

    def recv_multiple_tensors(self, *args, **kwargs):
        self.first = self.first or super().recv_multiple_tensors(*args, **kwargs)
        return self.first


class CopiesAtTheSource(CrossMemoryTransport):
    def extract_tensor_transport_metadata(self, obj_id, tensors):
        return super().extract_tensor_transport_metadata(obj_id, [tensor.clone() for tensor in tensors])


class CopiesAtTheReceiver(CrossMemoryTransport):
    def recv_multiple_tensors(self, *args, **kwargs):
        return [tensor.clone() for tensor in super().recv_multiple_tensors(*args, **kwargs)]
"""


class Here:
    """Stands for a source's process: everything is in this one."""

    pid = os.getpid()

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._pool = ThreadPoolExecutor(1)
        self._begun: Future[Any] | None = None

    def make(self, kind: type, *args: Any) -> int:
        self._objects.append(kind(*args))
        return len(self._objects) - 1

    def call(self, number: int, method: str, *args: Any) -> Any:
        return getattr(self._objects[number], method)(*args)

    def begin(self, number: int, method: str, *args: Any) -> None:
        self._begun = self._pool.submit(self.call, number, method, *args)

    def end(self) -> Any:
        assert self._begun is not None
        return self._begun.result(10)

    def forget(self, number: int) -> None:
        self._objects[number] = None


@pytest.fixture
def here() -> Any:
    return Here()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("faulty") / "faulty_in_benchmarks.py"
    path.write_text(FAULTY)
    return f"{path}:"


MIXED = Load(((3, 5), (), (0,), (1000,)), ("bfloat16", "int64", "float32", "uint8"), seed=3)
ARROW = "pyarrow.lib.Table"
LOADS = (
    flat(4), flat(100_000, 7), MIXED, *(flat(1000, 3, data_type=kind) for kind in ("numpy.ndarray", ARROW)),
    MIXED.adapted(ARROW, "cpu", seed=3),
)  # fmt: skip


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_contents_are_told_from_all_others(load: Load) -> None:
    contents, tensors = Contents(load), load.empty()
    contents.fill(tensors, 5)
    assert contents.wrong(tensors, 5) == ""
    assert contents.wrong(tensors, 6) != "" and contents.wrong(tensors, 4) != ""
    assert Contents(dataclasses.replace(load, seed=load.seed + 1)).wrong(tensors, 5) != ""
    read_first(tensors)


def test_no_two_of_many_turns_are_alike() -> None:
    contents = Contents(flat(64))
    assert len({contents.of(turn).tobytes() for turn in range(8192)}) == 8192


@pytest.mark.parametrize("at", [0, 63, 64, 99_999])
def test_one_wrong_byte_anywhere_is_found(at: int) -> None:
    load = flat(100_000)
    contents, tensors = Contents(load), load.empty()
    contents.fill(tensors, 1)
    tensors[0][at] ^= 1
    assert contents.wrong(tensors, 1).startswith(f"byte {at} of tensor 0 is 0x")


@pytest.mark.parametrize(
    ("received", "said"),
    [
        (None, "NoneType came where 2 were sent"),
        ([torch.zeros(5, dtype=torch.uint8)], "1 tensors came where 2 were sent"),
        ([torch.zeros(5, dtype=torch.uint8), torch.zeros(6, dtype=torch.uint8)], "tensor 1 is uint8[6]"),
        ([torch.zeros(5, dtype=torch.int8), torch.zeros(5, dtype=torch.uint8)], "tensor 0 is int8[5]"),
    ],
)
def test_what_came_instead_is_said(received: Any, said: str) -> None:
    contents = Contents(flat(10, 2))
    if received is not None:
        received[0].view(torch.uint8).copy_(torch.from_numpy(contents.of(1)[:5].copy()))
    assert contents.wrong(received, 1) == said


def test_tables_are_told_apart_however_they_are_cut_into_pieces() -> None:
    load = flat(1000, data_type=ARROW)
    contents, (table,) = Contents(load), load.empty()
    contents.fill([table], 1)
    assert contents.wrong([pa.concat_tables([table[:300], table[300:]])], 1) == ""
    assert contents.wrong([table[:999]], 1) == "tensor 0 is uint8[999]"
    assert contents.wrong([table.append_column("more", table.column(0))], 1) == "tensor 0 is columns[1000, 2]"
    assert contents.wrong([table.cast(pa.schema({"values": pa.int16()}))], 1) == "tensor 0 is int16[1000]"
    assert contents.wrong([as_bytes(table)], 1) == "tensor 0 is a ndarray"
    as_bytes(table)[999] ^= 1
    assert contents.wrong([table], 1).startswith("byte 999 of tensor 0 is 0x")


def test_bytes_of_what_is_not_contiguous_are_a_copy() -> None:
    assert as_bytes(torch.arange(4, dtype=torch.uint8).view(2, 2).t()).tolist() == [0, 2, 1, 3]
    assert as_bytes(np.arange(4, dtype=np.uint8).reshape(2, 2).T).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("spec", ["inline", "shared-memory", "cross-memory", "socket-pull", "tcp"])
def test_a_transport_is_a_contender(here: Any, spec: str, buffers: bool) -> None:
    contender = TransportContender(spec, here, flat(300_000, 3, buffers=buffers))
    try:
        for turn in range(1, 4):
            sample = contender.cycle(turn)
            assert contender.wrong(turn) == ""
            assert sum(getattr(sample, stage) for stage in STAGES) == pytest.approx(sample.whole, rel=0.02)
            assert min(sample) >= 0 and 0 < sample.ready < sample.whole
        assert contender.counters["metadata_bytes"] > 100
    finally:
        contender.close()


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_a_transport_carries_any_load(here: Any, load: Load) -> None:
    spec = f"{ROOT}/tests/subjects/arrow_ipc.py:ArrowIpcTransport" if load.data_type == ARROW else "inline"
    contender = TransportContender(spec, here, load)
    contender.cycle(1)
    assert contender.wrong(1) == ""
    contender.cycle(2)
    assert contender.wrong(1) != ""


def test_one_wrong_byte_in_a_hundred_cycles_is_found(here: Any, faulty: str) -> None:
    contender = TransportContender(f"{faulty}OneByteInHundred", here, flat(1000))
    wrong = []
    for turn in range(1, 121):
        contender.cycle(turn)
        wrong.append(contender.wrong(turn))
    assert [text[:19] for text in wrong if text] == ["byte 70 of tensor 0"]


def test_data_of_an_earlier_cycle_are_wrong(here: Any, faulty: str) -> None:
    contender = TransportContender(f"{faulty}Stale", here, flat(1000))
    contender.cycle(1)
    assert contender.wrong(1) == ""
    contender.cycle(2)
    assert contender.wrong(2) != ""


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("name", CEILINGS)
def test_a_ceiling_is_a_contender(here: Any, name: str, buffers: bool) -> None:
    ceiling = CEILINGS[name](here, flat(300_000, 3, buffers=buffers))
    try:
        for turn in range(1, 4):
            sample = ceiling.cycle(turn)
            assert ceiling.wrong(turn) == ""
            assert sum(getattr(sample, stage) for stage in STAGES) == pytest.approx(sample.whole, rel=0.02)
    finally:
        ceiling.close()


@pytest.mark.parametrize("name", [name for name in CEILINGS if name != "first touch"])
def test_a_ceiling_is_verified_as_well(here: Any, name: str) -> None:
    ceiling = CEILINGS[name](here, flat(1000))
    ceiling.cycle(1)
    assert ceiling.wrong(2) != ""
    ceiling.close()


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("kind", [DeviceCopy, FromHost])
def test_a_copy_on_a_gpu_is_a_contender(here: Any, kind: type[DeviceCopy], buffers: bool) -> None:
    """The same with host memory, as far as that can be: what the driver of a GPU does is seen in tests/gpu."""
    copy = kind(here, flat(300_000, 3, buffers=buffers))
    for turn in range(1, 4):
        sample = copy.cycle(turn)
        assert copy.wrong(turn) == ""
        assert sum(getattr(sample, stage) for stage in STAGES) == pytest.approx(sample.whole)
    copy.cycle(4)
    assert copy.wrong(5) != ""


@pytest.mark.parametrize("buffers", [False, True])
def test_a_library_that_both_sides_take_part_in_is_a_contender(
    here: Any, buffers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gloo stands for NCCL, and host memory for that of GPUs."""
    monkeypatch.setattr(raw_gpu_libraries, "_group", lambda store, rank: raw_libraries._gloo(0, rank, store))
    monkeypatch.setattr("torch.distributed.ProcessGroupGloo.abort", lambda _: None)
    peer = raw_gpu_libraries.RawNccl(here, flat(300_000, 3, buffers=buffers))
    for turn in range(1, 4):
        sample = peer.cycle(turn)
        assert peer.wrong(turn) == ""
        assert 0 < sample.wait == sample.whole
    peer.cycle(4)
    assert peer.wrong(5) != ""
    peer.close()


def test_what_was_begun_before_an_error_is_ended(here: Any) -> None:
    class Failing(raw_gpu_libraries.FromOther):
        ended = 0

        def fill(self, tensor: torch.Tensor) -> None:
            raise ConnectionError

        def after(self) -> None:
            self.ended += 1

    failing = Failing(here, flat(10))
    with pytest.raises(ConnectionError):
        failing.cycle(1)
    assert failing.ended == 1


def test_memory_that_no_cache_holds_is_not_used_twice_in_a_row() -> None:
    ring = ceilings._Ring(3 * mmap.PAGESIZE)
    places = [ring.next(5).__array_interface__["data"][0] for _ in range(6)]
    assert len({*places[:3]}) == 3 and places[:3] == places[3:]
    assert len(ring.next(4 * mmap.PAGESIZE)) == 4 * mmap.PAGESIZE


def test_a_machine_with_little_memory_has_no_such_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_MOST_MEMORY", 1 << 20)
    assert ceilings_for("cpu") == [name for name in CEILINGS if name != "memcpy from memory"]


def test_memory_of_gpus_has_limits_of_its_own() -> None:
    assert set(CEILINGS) - {"memcpy from memory"} <= set(ceilings_for("cpu")) <= set(CEILINGS)
    assert {"device copy", "copy from host"} <= set(ceilings_for("cuda")) <= set(GPU_CEILINGS)


def test_copies_are_counted(here: Any, faulty: str) -> None:
    """One more is seen every time. Source and receiver share this process, so each copy counts for both."""
    for _ in range(3):
        for spec, expected in (
            ("cross-memory", 1),
            (f"{faulty}CopiesAtTheSource", 2),
            (f"{faulty}CopiesAtTheReceiver", 2),
        ):
            assert copies(spec, here, flat(16 << 20)) == pytest.approx(2 * expected, abs=0.2)


@pytest.mark.parametrize("spec", ["inline", "shared-memory", "tcp"])
def test_several_objects_are_in_flight_together(here: Any, spec: str) -> None:
    contender = TransportContender(spec, here, flat(8000, 8), objects=4)
    for turn in (1, 2):
        sample = contender.cycle(turn)
        assert contender.wrong(turn) == ""
        assert sum(getattr(sample, stage) for stage in STAGES) == pytest.approx(sample.whole, rel=0.02)
    contender.close()


OTHERS: Any = [Here()]
PATTERNS = {
    "to several": lambda spec, here, load: FanOut(spec, here, load, OTHERS, held_against=False),
    "both ways": lambda spec, here, load: BothWays(spec, here, load, held_against=False),
    "under bulk": lambda spec, here, load: UnderBulk(spec, here, load, held_against=False),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_verified_on_every_side(here: Any, faulty: str, pattern: str) -> None:
    contender = PATTERNS[pattern]("shared-memory", here, flat(3000, 3))
    for turn in (1, 2):
        sample = contender.cycle(turn)
        assert contender.wrong(turn) == ""
        assert sum(getattr(sample, stage) for stage in STAGES) == pytest.approx(sample.whole, rel=0.02)
    contender.close()
    wrong = PATTERNS[pattern](f"{faulty}WrongAtSecond", here, flat(3000, 3))
    wrong.cycle(1)
    assert "of tensor 0 is 0x" in wrong.wrong(1)
    wrong.close()


@pytest.mark.filterwarnings("error")
def test_contents_are_put_on_other_devices_without_a_warning() -> None:
    """A meta tensor stands for the GPU: nothing can be written into it, but it is written into in the same way."""
    load = flat(1000)
    Contents(load).fill([torch.empty(1000, dtype=torch.uint8, device="meta")], 1)
