"""The watch must name every leak with its rate, and say nothing about caches, pools and what others do."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import gc
import mmap
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rdt_conformance.observe import Growth, Leak, Watch, growth, leaks, proc

MEGABYTE = 1 << 20
REGISTRY: dict[int, object] = {}


class Transport:
    """Holds what a test plants in it."""

    kept: ClassVar[dict[int, object]] = {}

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests plant stays, except where they wait for it."""
    monkeypatch.setattr(leaks, "_PATIENCE", 0.05)


@pytest.fixture
def transport() -> Iterator[Transport]:
    yield Transport()
    Transport.kept.clear()
    REGISTRY.clear()


@pytest.fixture
def cleanup() -> Iterator[list[Callable[[], object]]]:
    """What to call at the end, last first."""
    calls: list[Callable[[], object]] = []
    yield calls
    for call in reversed(calls):
        call()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files that no other process writes to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A part of ``/dev/shm`` that no other process writes to."""
    with tempfile.TemporaryDirectory(dir=proc.SHARED_MEMORY) as directory:
        monkeypatch.setattr(proc, "SHARED_MEMORY", directory)
        yield Path(directory)


def judge(
    cycle: Callable[[int], object],
    transport: object | None = None,
    *,
    cycles: int = 5,
    most_cycles: int = 60,
    payload_bytes: int = 0,
    seconds: float = 20.0,
) -> Growth:
    """Judge a cycle that is told its number."""
    numbers = iter(range(sys.maxsize))

    def run_cycles(count: int) -> None:
        for _ in range(count):
            cycle(next(numbers))

    watch = Watch([transport] if transport is not None else [], memory=payload_bytes > 0)
    deadline = time.monotonic() + seconds
    return growth(
        run_cycles, watch, cycles=cycles, most_cycles=most_cycles, deadline=deadline, payload_bytes=payload_bytes
    )


def only(found: Growth, kind: str) -> Leak:
    assert [leak.kind for leak in found.leaks] == [kind]
    assert found.judged
    return found.leaks[0]


def test_descriptors_that_stay_open_are_named_one_per_cycle(tmp_path: Path, cleanup: list) -> None:
    path = tmp_path / "leaked"
    path.touch()

    def cycle(_: int) -> None:
        cleanup.append(functools.partial(os.close, os.open(path, os.O_RDONLY)))

    leak = only(judge(cycle), "open files")
    assert leak.per_cycle == 1
    assert leak.after - leak.before == leak.cycles == 55
    assert str(path) in leak.examples
    assert leak.sentence.startswith(
        f"open files grew from {leak.before} to {leak.after} over 55 cycles (one per cycle)"
    )


def test_sockets_are_named_with_their_addresses(cleanup: list) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    cleanup.append(server.close)
    port = server.getsockname()[1]

    def cycle(_: int) -> None:
        for end in (socket.create_connection(("127.0.0.1", port)), server.accept()[0]):
            cleanup.append(end.close)

    leak = only(judge(cycle), "sockets")
    assert leak.per_cycle == 2
    assert f"127.0.0.1:{port}" in leak.sentence
    assert "open sockets grew" in leak.sentence
    assert "(2 per cycle)" in leak.sentence


def test_pipes_and_memfds_are_told_apart(cleanup: list) -> None:
    def cycle(_: int) -> None:
        for descriptor in (*os.pipe(), os.memfd_create("planted")):
            cleanup.append(functools.partial(os.close, descriptor))

    rates = {leak.kind: leak.per_cycle for leak in judge(cycle).leaks}
    assert rates == {"pipes": 2, "memfds": 1}


def test_threads_are_named(cleanup: list) -> None:
    stop = threading.Event()

    def cycle(_: int) -> None:
        thread = threading.Thread(target=stop.wait, name="planted", daemon=True)
        thread.start()
        cleanup.append(thread.join)

    leak = only(judge(cycle), "threads")
    stop.set()
    assert leak.per_cycle == 1
    assert leak.examples == ("planted",)


def test_child_processes_are_named(cleanup: list) -> None:
    def cycle(_: int) -> None:
        child = subprocess.Popen(["sleep", "60"])
        cleanup.extend((child.wait, child.kill))

    leak = only(judge(cycle, cycles=2, most_cycles=12), "child processes")
    assert leak.per_cycle == 1
    assert "sleep" in leak.sentence


def test_shared_memory_files_that_nobody_holds_are_named(shared_memory: Path) -> None:
    leak = only(judge(lambda number: (shared_memory / f"planted_{number}").touch()), "shared memory files")
    assert leak.per_cycle == 1
    assert str(shared_memory / "planted_") in leak.sentence


def test_shared_memory_that_stays_mapped_is_named_though_its_name_is_gone(shared_memory: Path, cleanup: list) -> None:
    path = shared_memory / "planted"

    def cycle(_: int) -> None:
        with path.open("wb+") as file:
            file.truncate(mmap.PAGESIZE)
            cleanup.append(mmap.mmap(file.fileno(), mmap.PAGESIZE).close)
        path.unlink()

    rates = {leak.kind: leak.per_cycle for leak in judge(cycle).leaks}
    assert rates["shared memory files"] == rates["mapped files"] == 1


def test_temporary_files_are_named(temporary: Path) -> None:
    leak = only(judge(lambda number: (temporary / f"planted_{number}").touch()), "temporary files")
    assert leak.per_cycle == 1
    assert str(temporary / "planted_") in leak.sentence


@pytest.mark.parametrize(
    ("path", "container"),
    [
        ("self.objects", lambda transport: transport.objects),
        ("Transport.kept", lambda transport: transport.kept),
        (f"{__name__}.REGISTRY", lambda transport: REGISTRY),
    ],
)
def test_entries_are_named_by_their_container(transport: Transport, path: str, container: Callable[[Any], Any]) -> None:
    leak = only(
        judge(lambda number: container(transport).update({number: [1, 2]}), transport), f"registrations in {path}"
    )
    assert leak.per_cycle == 1
    assert f"registrations in {path} grew from 5 to 60 over 55 cycles (one per cycle)" in leak.sentence


def test_memory_that_is_kept_is_named() -> None:
    kept: list[bytes] = []
    found = judge(lambda _: kept.append(b"x" * MEGABYTE), payload_bytes=MEGABYTE, most_cycles=40)
    leak = only(found, "uss bytes")
    assert leak.per_cycle == pytest.approx(MEGABYTE, rel=0.2)
    assert "MB per cycle" in leak.sentence


def test_a_leak_in_every_third_cycle_is_found(transport: Transport) -> None:
    leak = only(
        judge(lambda number: transport.objects.update({number // 3: 0}), transport), "registrations in self.objects"
    )
    assert leak.per_cycle == pytest.approx(1 / 3, abs=0.02)
    assert "one in every 3 cycles" in leak.sentence


def test_a_leak_is_reported_before_the_process_runs_out_of_descriptors(cleanup: list) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    cleanup.append(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits))
    leak = only(judge(lambda _: cleanup.append(_open_descriptor()), most_cycles=2_000), "open files")
    assert leak.per_cycle == 1
    assert leak.cycles < 200
    assert "file descriptors would have run out" in leak.sentence


def _open_descriptor() -> Callable[[], None]:
    """Open one and return how to close it."""
    return functools.partial(os.close, os.open(__file__, os.O_RDONLY))


def test_too_little_time_is_said(transport: Transport) -> None:
    def cycle(number: int) -> None:
        transport.objects.update({(number, element): 0 for element in range(10)})
        time.sleep(0.002)

    leak = only(judge(cycle, transport, most_cycles=1_000_000, seconds=3), "registrations in self.objects")
    assert "time would have run out" in leak.note
    assert not judge(cycle, transport, seconds=0).judged


def test_a_cache_that_had_no_time_to_fill_is_no_leak(transport: Transport) -> None:
    def cycle(number: int) -> None:
        transport.objects[number % 900] = 0
        time.sleep(0.002)

    found = judge(cycle, transport, most_cycles=2_000, seconds=1)
    assert not found.leaks
    assert not found.judged


def test_memory_for_a_thousand_objects_is_no_leak_before_it_had_time_to_fill() -> None:
    kept: list[mmap.mmap] = []

    def cycle(number: int) -> None:
        # Bytes could come to lie where earlier tests have freed some.
        kept.append(mmap.mmap(-1, 256 << 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].write(os.urandom(256 << 10))
        time.sleep(0.02)

    found = judge(cycle, most_cycles=100_000, payload_bytes=256 << 10, seconds=2)
    assert not found.leaks
    assert not found.judged


def test_cycles_that_slow_down_do_not_outlast_the_deadline(transport: Transport) -> None:
    def cycle(number: int) -> None:
        transport.objects.update({(number, element): 0 for element in range(50)})
        time.sleep(0.00005 * number)

    began = time.monotonic()
    only(judge(cycle, transport, most_cycles=1_000_000, seconds=2), "registrations in self.objects")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("size", [50, 1_000])
def test_a_bounded_cache_is_no_leak(transport: Transport, size: int) -> None:
    transport.objects = cache = collections.OrderedDict()

    def cycle(number: int) -> None:
        cache[number] = [number]
        if len(cache) > size:
            cache.popitem(last=False)

    found = judge(cycle, transport, cycles=20, most_cycles=2_000)
    assert not found.leaks
    assert found.steady["registrations in self.objects"] == size


def test_a_pool_that_fills_is_no_leak(shared_memory: Path) -> None:
    def cycle(number: int) -> None:
        if number < 32:
            (shared_memory / f"segment_{number}").touch()

    found = judge(cycle, most_cycles=300)
    assert not found.leaks
    assert found.steady["shared memory files"] == 32


def test_one_worker_and_one_connection_are_no_leaks(transport: Transport, cleanup: list) -> None:
    workers = concurrent.futures.ThreadPoolExecutor(1)
    cleanup.append(workers.shutdown)
    ends: list[socket.socket] = []

    def cycle(number: int) -> None:
        if not ends:
            ends.extend(socket.socketpair())
            cleanup.extend(end.close for end in ends)
        ends[0].send(b"x")
        assert workers.submit(ends[1].recv, 1).result() == b"x"

    assert not judge(cycle, transport).leaks


def test_memory_that_comes_and_goes_is_no_leak() -> None:
    random_sizes = random.Random(1)
    window: collections.deque[bytes] = collections.deque(maxlen=8)

    def cycle(_: int) -> None:
        window.append(b"x" * random_sizes.randrange(MEGABYTE))
        arrays = [np.ones(random_sizes.randrange(100_000)) for _ in range(3)]
        arrays.sort(key=len)

    assert not judge(cycle, cycles=10, most_cycles=200, payload_bytes=MEGABYTE).leaks


def test_memory_of_a_pool_that_chance_fills_is_no_leak() -> None:
    pool: list[mmap.mmap] = []

    def cycle(number: int) -> None:
        if number % 2 and len(pool) < 48:  # as many were never in use at once before
            pool.append(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            pool[-1].write(os.urandom(1 << 20))

    found = judge(cycle, cycles=8, most_cycles=80, payload_bytes=(1 << 20) - (1 << 16))
    assert not found.leaks
    assert found.judged


def test_what_another_thread_opens_and_closes_is_no_leak() -> None:
    stop = threading.Event()

    def disturb() -> None:
        chance = random.Random(2)
        opened: list[Callable[[], None]] = []
        while not stop.wait(0.001):
            if chance.random() < 0.5 and len(opened) < 8:
                opened.append(_open_descriptor())
            elif opened:
                opened.pop()()
        for close in opened:
            close()

    disturbance = threading.Thread(target=disturb)
    disturbance.start()
    try:
        for _ in range(5):
            assert not judge(lambda _: time.sleep(0.0005), most_cycles=300).leaks
    finally:
        stop.set()
        disturbance.join()


def test_threads_that_end_a_little_later_are_no_leak(cleanup: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_PATIENCE", 1.0)

    def cycle(_: int) -> None:
        timer = threading.Timer(0.3, lambda: None)
        timer.start()
        cleanup.append(timer.join)

    assert not judge(cycle).leaks


class Ring:
    """Refers to itself, so that only a garbage collection ends it, and closes a file then."""

    def __init__(self) -> None:
        self.itself = self
        self.descriptor = os.open(__file__, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.descriptor)


def test_garbage_in_rings_is_collected_before_counting(cleanup: list) -> None:
    gc.disable()
    cleanup.append(gc.enable)
    assert not judge(lambda _: Ring()).leaks


def test_growth_needs_two_rounds() -> None:
    with pytest.raises(ValueError, match="two rounds"):
        growth(lambda _: None, Watch(), cycles=1, rounds=1, most_cycles=1, deadline=0)


def test_rates_are_said_in_words() -> None:
    def sentence(rate: float) -> str:
        return Leak("threads", rate, 3, 43, 40, ("lane",)).sentence

    assert sentence(1.0) == "threads grew from 3 to 43 over 40 cycles (one per cycle), e.g. lane"
    assert "(one in every 4 cycles)" in sentence(0.25)
    assert "(2.5 per cycle)" in sentence(2.5)
