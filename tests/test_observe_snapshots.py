"""What a watch sees at one moment: containers, snapshots, what is left behind, and where threads are."""

from __future__ import annotations

import atexit
import collections
import functools
import json
import logging
import mmap
import os
import pickle
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rdt_conformance.observe import (
    Resources,
    Watch,
    containers,
    left_behind,
    proc,
    registrations as all_registrations,
    stacks,
)
from rdt_conformance.observe.standing import EXIT_HANDLERS, FINALIZERS, LOGGERS

REGISTRY: dict[int, object] = {}
STANDING = (FINALIZERS, EXIT_HANDLERS, LOGGERS)


def registrations(transport: object) -> dict[str, int]:
    """Without what pytest keeps of this module's tests."""
    return _of_transports(all_registrations(transport))


def _of_transports(found: dict[str, int]) -> dict[str, int]:
    return {path: n for path, n in found.items() if path not in STANDING and not path.endswith(".pytestmark")}


class Transport:
    """Holds what a test plants in it."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}


@pytest.fixture
def cleanup() -> Iterator[list[Callable[[], object]]]:
    """What to call at the end, last first."""
    calls: list[Callable[[], object]] = []
    yield calls
    for call in reversed(calls):
        call()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files, and ``shm`` beside it, that no other process writes to."""
    for name in ("temporary", "shm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(proc, "SHARED_MEMORY", str(tmp_path / "shm"))
    return tmp_path / "temporary"


class Helper:
    """An object of the transport's own, with slots and a property that must not be called."""

    __slots__ = ("__weakref__", "empty", "views")
    instances: ClassVar[list[object]] = []

    def __init__(self, views: int) -> None:
        self.views = list(range(views))

    def looked(self) -> None:
        """Do nothing."""

    @property
    def trap(self) -> object:
        raise AssertionError("a property was called")

    def __len__(self) -> int:
        raise AssertionError("__len__ was called")


class LyingDict(dict):  # type: ignore[type-arg]
    """A dictionary that looks empty."""

    def __len__(self) -> int:
        return 0

    def values(self) -> Any:
        return []


class MarkedArray(np.ndarray):
    """An array, of a class of the author's."""


def test_every_container_within_reach_is_counted() -> None:
    transport = Transport()
    waiting: queue.Queue[int] = queue.Queue()
    waiting.put(1)
    simple: queue.SimpleQueue[int] = queue.SimpleQueue()
    simple.put(1)
    alive = Helper(0)
    cached = functools.lru_cache(lambda x: x)
    cached(1)
    cached(2)
    array = np.ones(3).view(MarkedArray)
    array.notes = [1, 2, 3]  # type: ignore[attr-defined]
    vars(transport).update(
        objects={"a": (Helper(2), "x"), "b": (Helper(3), "y")},
        waiting=waiting,
        simple=simple,
        recent=collections.deque([1, 2, 3]),
        weak=weakref.WeakValueDictionary({1: alive}),
        weak_set=weakref.WeakSet([alive]),
        ids={1, 2},
        by_actor=collections.defaultdict(list, {"x": [[1], [1, 2]]}),
        lying=LyingDict({1: {2: 3}}),
        cached=cached,
        array=array,
        module=sys,
        itself=transport,
        shared=waiting,
        empty={},
    )
    assert registrations(transport) == {
        "self.objects": 2,
        "self.objects[][].views": 5,
        "self.waiting": 1,
        "self.simple": 1,
        "self.recent": 3,
        "self.weak": 1,
        "self.weak_set": 1,
        "self.ids": 2,
        "self.by_actor": 1,
        "self.by_actor[]": 2,
        "self.by_actor[][]": 3,
        "self.lying": 1,
        "self.lying[]": 1,
        "self.cached": 2,
    }


def test_what_functions_hold_is_counted() -> None:
    def remembering() -> Callable[[str], None]:
        seen = ["a", "b"]
        return lambda obj_id: seen.append(obj_id)

    def described(obj_id: str, known: Any = {"a": 1}, *, kept: Any = ("x", ["y"])) -> None:  # noqa: B006
        known[obj_id] = kept

    def attributed() -> None:
        pass

    attributed.__dict__["seen"] = {1: 2, 3: 4}
    transport = Transport()
    transport.__dict__.update(
        note=remembering(),
        describe=described,
        later=functools.partial(described, "c", [1, 2, 3]),
        bound=Helper(4).looked,
        theirs=functools.partial(json.dumps, [1]),
        static=staticmethod(attributed),
    )
    assert registrations(transport) == {
        "self.note.seen": 2,
        "self.describe.known": 1,
        "self.describe.kept[]": 1,
        "self.later": 3,
        "self.bound.views": 4,
        "self.theirs": 1,
        "self.static.seen": 2,
    }


def test_what_python_keeps_for_a_transport_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch([Transport()], memory=False)
    transport, nobodys = Transport(), threading.Event()

    def counts() -> dict[str, int]:
        found = watch.snapshot().registrations
        return {path: found.get(path, 0) for path in STANDING}

    weakref.finalize(nobodys, print, end="")  # the first one registers something for the end as well
    before = counts()
    weakref.finalize(transport, print, end="")
    weakref.finalize(nobodys, Helper(1).looked)
    weakref.finalize(nobodys, print, end="")
    atexit.register(nothing_at_all)
    monkeypatch.setattr(logging.root.manager, "loggerDict", {**logging.root.manager.loggerDict})
    logging.getLogger(f"transport.{id(transport)}")
    try:
        after = counts()
    finally:
        atexit.unregister(nothing_at_all)
    assert counts()[EXIT_HANDLERS] == before[EXIT_HANDLERS]
    assert {path: after[path] - before[path] for path in after} == {FINALIZERS: 2, EXIT_HANDLERS: 1, LOGGERS: 2}
    del transport, nobodys
    assert counts()[FINALIZERS] == before[FINALIZERS]


def nothing_at_all() -> None:
    """For the end."""


def test_what_instances_share_counts_once_and_their_own_adds_up() -> None:
    first, second = Transport(), Transport()
    first.objects = {1: 0}
    second.objects = {1: 0, 2: 0}
    REGISTRY[1] = 0
    try:
        found = Watch([first, second], memory=False).snapshot()
    finally:
        REGISTRY.clear()
    assert _of_transports(found.registrations) == {"self.objects": 3, f"{__name__}.REGISTRY": 1}
    marks = sum(n for path, n in found.registrations.items() if path.endswith(".pytestmark"))
    assert found.counts["registrations"] == 4 + marks


def test_containers_may_change_while_they_are_counted() -> None:
    transport = Transport()
    stop = threading.Event()

    def disturb() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            transport.objects[number] = collections.deque([number], maxlen=3)
            setattr(transport, f"attribute_{number % 50}", {number})
            if number > 200:
                del transport.objects[number - 200]

    disturbance = threading.Thread(target=disturb)
    disturbance.start()
    try:
        give_up = time.monotonic() + 0.3
        while time.monotonic() < give_up:
            registrations(transport)
    finally:
        stop.set()
        disturbance.join()


def test_reading_a_container_that_changed_is_tried_again() -> None:
    readings = iter([RuntimeError("changed size during iteration"), None])

    def elements(container: list[int]) -> Iterator[int]:
        if (error := next(readings)) is not None:
            raise error
        return iter(container)

    assert containers._first_elements(elements, [1, 2]) == [1, 2]


def test_the_walk_is_bounded() -> None:
    transport = Transport()
    chain: list[Any] = []
    for _ in range(10_000):
        chain = [chain]
    transport.objects = {number: [number] for number in range(200_000)}
    vars(transport)["chain"] = chain
    began = time.monotonic()
    found = registrations(transport)
    assert time.monotonic() - began < 1
    assert found["self.objects"] == 200_000


def test_a_snapshot_pickles_and_is_quick() -> None:
    watch = Watch([Transport()], memory=False)
    snapshot = watch.snapshot()
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
    assert isinstance(snapshot, Resources)
    costs = []
    for _ in range(20):
        began = time.thread_time()
        watch.snapshot()
        costs.append(time.thread_time() - began)
    assert min(costs) < 0.010


def test_memory_is_measured_on_request() -> None:
    assert {"rss bytes", "uss bytes"} <= Watch().snapshot().counts.keys()
    assert "uss bytes" not in Watch(memory=False).snapshot().counts


@pytest.mark.parametrize(("name", "counts"), [("cuda.shm.0.test", False), ("rdt_test", True)])
def test_what_cudas_driver_keeps_mapped_of_every_process_it_has_met_is_no_leak(name: str, counts: bool) -> None:
    watch = Watch(memory=False)
    before = watch.snapshot().counts
    path = f"{proc.SHARED_MEMORY}/{name}.{os.getpid():x}"
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "r+b") as file:
        os.unlink(path)
        file.truncate(mmap.PAGESIZE)
        kept = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    with kept:
        assert (watch.snapshot().counts["mapped files"] > before["mapped files"]) is counts


def test_other_systems_tell_less_and_crash_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    counts = Watch(memory=False).snapshot().counts
    assert counts["threads"] >= 1
    assert "sockets" not in counts


def test_a_run_that_leaves_nothing_is_told_at_once(temporary: Path) -> None:
    watch = Watch(memory=False)
    began = time.monotonic()
    assert left_behind(watch, patience=30) == {}
    assert time.monotonic() - began < 30


def test_everything_left_behind_is_named(temporary: Path, cleanup: list) -> None:
    watch = Watch(memory=False)
    segment, file = temporary.parent / "shm" / "planted", temporary / "planted"
    for path in (segment, file):
        path.touch()
        cleanup.append(path.unlink)
    child = subprocess.Popen(["sleep", "60"])
    cleanup.extend((child.wait, child.kill))
    stop = threading.Event()
    for daemon in (True, False):
        thread = threading.Thread(target=stop.wait, name=f"daemon is {daemon}", daemon=daemon)
        thread.start()
        cleanup.append(thread.join)
    cleanup.append(stop.set)
    assert left_behind(watch, patience=0.05) == {
        "shared memory files": (str(segment),),
        "temporary files": (str(file),),
        "child processes": (f"{child.pid} sleep",),
        "threads": ("daemon is False",),
    }


def test_what_goes_away_by_itself_is_not_left_behind(temporary: Path) -> None:
    watch = Watch(memory=False)
    (temporary / "planted").touch()
    timer = threading.Timer(0.1, (temporary / "planted").unlink)
    timer.start()
    assert left_behind(watch, patience=10) == {}
    timer.join()


def test_files_of_other_processes_are_not_left_behind(temporary: Path) -> None:
    watch = Watch(memory=False)
    path = temporary / "foreign"
    # The shell ends, so that its child is no longer a descendant of this process.
    script = f"sleep 60 > {path} 2>&1 & echo $!"
    pid = int(subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout)
    try:
        assert path.exists()
        assert left_behind(watch, patience=0.05) == {}
    finally:
        os.kill(pid, 9)


def wait_in_authors_code(entered: threading.Event, leave: threading.Event) -> None:
    entered.set()
    leave.wait()


def test_stacks_begin_at_the_authors_code(cleanup: list) -> None:
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=wait_in_authors_code, args=(entered, leave), name="lane")
    thread.start()
    cleanup.extend((thread.join, leave.set))
    entered.wait(5)
    here = threading.current_thread()
    text = stacks([thread, here.ident or 0, 12345])
    lane, mine, gone = re.split("^thread ", text, flags=re.MULTILINE)[1:]
    assert lane.startswith("lane:\n")
    assert "in wait_in_authors_code\n    leave.wait()" in lane
    assert "_bootstrap" not in lane
    assert mine.splitlines()[1].endswith("in test_stacks_begin_at_the_authors_code")
    assert gone == "12345: not running"


def test_memory_is_what_a_process_has_written_and_not_what_files_hold_as_well() -> None:
    size = 8 << 20
    with open(sys.executable, "rb") as file:
        code = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    before = proc.memory()[1]
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as written, code:
        for place in range(0, size, mmap.PAGESIZE):
            written[place] = 1
        read = sum(code[place] for place in range(0, len(code), mmap.PAGESIZE))
        assert read and -(1 << 20) < proc.memory()[1] - before - size < 1 << 20
