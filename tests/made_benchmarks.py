"""Benchmarks for tests: as a run would have measured them, from times that are drawn here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rdt_conformance.bench import gate
from rdt_conformance.bench.loop import Sample, Series
from rdt_conformance.bench.results import CellResult, Role, Row, summarize
from rdt_conformance.words import in_bytes

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
LIMITS = {"memcpy": 1.2e10, "memcpy from memory": 7e9, "first touch": 2.2e9, "process_vm_readv": 8e9, "socket": 2.5e9}
"""Bytes in a second."""


def _series(seconds: float, count: int, draw: np.random.Generator, counters: dict[str, float]) -> Series:
    """Times with a long tail, which a busy machine makes longer for a while."""
    took = seconds * draw.lognormal(0, 0.1, count) * np.where(draw.random(count) < 0.02, 3, 1)
    took[count // 2 : count // 2 + count // 10] *= 1.3
    samples = [
        Sample(
            each * 0.4, each * 0.3, each * 0.5, each * 0.1, each * 0.5, each * 0.1, each * 0.05, each * 2, each * 1.5
        )
        for each in took
    ]
    return Series(samples[:4], samples, count + 44, counters)


def cell(
    benchmark: str,
    name: str,
    nbytes: int,
    tensors: int = 1,
    *,
    count: int = 200,
    speed: float = 5e9,
    peers: dict[str, float] | None = None,
    baseline: float = 0.0,
    seed: int = 1,
    **how: Any,
) -> CellResult:
    """One cell.

    Args:
        benchmark: the name of its test function.
        name: of the cell.
        nbytes: of the payload.
        tensors: in which it comes.
        count: samples of each contender.
        speed: of the transport, in bytes in a second, once the price of a transfer and of its tensors is paid.
        peers: other transports, by how many times as long they take.
        baseline: how many times as long the earlier version takes, if there is one.
        seed: of what is drawn.
        **how: what else `CellResult` knows.
    """
    draw = np.random.default_rng(seed)
    result = CellResult(benchmark, name, how.pop("engine", "local"), nbytes, tensors, how.pop("buffers", False), **how)
    took = 4e-5 + 5e-6 * tensors + nbytes / speed
    copies = {"copies": 1.6} if nbytes >= 16 * MIB else {}
    own = _series(took, count, draw, {"metadata_bytes": 200.0 + 15 * tensors, **copies})
    result.rows.append(summarize("mine:Mine", "transport", own, own, nbytes, seed))

    def beside(name: str, role: Role, seconds: float) -> None:
        result.rows.append(summarize(name, role, _series(seconds, count, draw, {}), own, nbytes, seed))

    for limit, rate in LIMITS.items():
        beside(limit, "ceiling", 5e-6 + nbytes / rate)
    for peer, slower in (peers or {}).items():
        beside(f"peer {peer}", "peer", took * slower)
    if baseline:
        beside("against old.py:Old", "baseline", took * baseline)
        beside("against old.py:Old again", "again", took * baseline)
        result.findings = gate.against(result)
    return result


def full(speed: float = 5e9, seed: int = 1, **how: Any) -> list[CellResult]:
    """Every benchmark of the shipped suites."""
    return [each for make in (_transfers, _workloads) for each in make({"speed": speed, "seed": seed, **how})]


def some(speed: float, seed: int) -> list[CellResult]:
    """A few of them, as after the checks."""
    sizes = [cell("test_single_tensor", in_bytes(s), s, count=40, speed=speed, seed=seed) for s in (4, 64 * KIB, MIB)]
    one, many = (
        cell("test_number_of_tensors", f"1 MiB in {number} tensors", MIB, number, count=40, speed=speed, seed=seed)
        for number in (1, 100)
    )
    return [*sizes, one, many]


def _transfers(how: dict[str, Any]) -> Iterator[CellResult]:
    for size in SIZES:
        yield cell("test_single_tensor", in_bytes(size), size, count=1000 if size == 4 else 40, **how)
    for size in (MIB, 16 * MIB, 64 * MIB):
        yield cell("test_into_buffers", in_bytes(size), size, count=40, buffers=True, **how)
    for number in (1, 10, 100, 1_000, 10_000):
        yield cell("test_number_of_tensors", f"16 MiB in {number} tensors", 16 * MIB, number, count=40, **how)


def _workloads(how: dict[str, Any]) -> Iterator[CellResult]:
    yield cell("test_weight_sync", "10 layers to 1 receiver", 35 * MIB, 90, count=40, buffers=True, **how)
    for number in (1, 8, 64):
        size = 64 * KIB * number
        yield cell("test_pipelined_gets", f"{number} x 64 KiB", size, number, objects=number, count=40, **how)
    yield cell("test_both_directions", "16 MiB", 16 * MIB, count=40, **how)
    for engine in ("local", "ray"):
        for size in (4, MIB):
            each = cell("test_whole_rdt", f"{in_bytes(size)} on {engine}", size, count=40, engine=engine, **how)
            ways = [replace(each.rows[0], name="passed to a task"), replace(each.rows[1], name="by a get", role="peer")]
            yield replace(each, rows=ways)


def odd() -> list[CellResult]:
    """What can go wrong: no samples, one of them, wrong data, nothing compared, nothing that the machine could do."""
    one = cell("test_single_tensor", "4 B", 4, count=1)
    wrong = cell("test_single_tensor", "1 KiB", KIB)
    wrong.rows[0] = Row("mine:Mine", "transport", problem="wrong data in cycle 3: byte 70 of tensor 0 is 0x01")
    unverified = cell("test_single_tensor", "16 KiB", 16 * KIB)
    unverified.rows[0].verified = 0
    empty = cell("test_single_tensor", "64 KiB", 64 * KIB)
    empty.rows[0].samples, empty.rows[0].pairs = [], 0
    instant = cell("test_single_tensor", "256 KiB", 256 * KIB, count=1)
    instant.rows[1].median, instant.rows[1].samples = 0.0, [0.0]
    impossible = CellResult("test_single_tensor", "64 GiB", "local", 64 << 30, 1, False, why_not="it takes 640 GiB")
    alone = CellResult("test_pipelined_gets", "1 x 0 B", "local", 0, 0, False, rows=[replace(one.rows[0])])
    held = cell("test_into_buffers", "1 MiB", MIB, count=40, buffers=True, peers={"ray:NIXL": 1.4}, baseline=1.2)
    return [one, wrong, unverified, empty, instant, impossible, alone, held]


def nothing_exact() -> list[CellResult]:
    """A transport that is wrong everywhere."""
    cells = full()
    for each in cells:
        each.rows[0] = Row("mine:Mine", "transport", problem="wrong data in cycle 1: byte 0 of tensor 0 is 0x00")
    return cells


def named(text: str, problem: str) -> list[CellResult]:
    """Texts that somebody else chose, everywhere."""
    told = cell("test_single_tensor", text, KIB, peers={text: 2.0}, baseline=1.2)
    told.findings = [replace(finding, what=text, words=text) for finding in told.findings]
    failed = cell("test_single_tensor", text, MIB, engine=text)
    failed.rows[0] = Row(text, "transport", problem=problem)
    missing = CellResult(text, text, text, 4, 1, False, why_not=text)
    return [told, failed, missing]
