"""A Ray of our own is private and leaves nothing behind, however it ends; another one is joined and left alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rdt_conformance.engines import ray_keeper
from rdt_conformance.engines.ray_connection import token_shown
from rdt_conformance.engines.ray_session import RayProblem, RaySession
from rdt_conformance.file_limit import allow_many_files

pytestmark = pytest.mark.timeout(300)

START = 180.0
"""Seconds within which a Ray starts even if the machine is busy."""

HOST = """
import json, os, sys, psutil, ray
from rdt_conformance.engines.ray_session import RaySession

os.environ["RAY_ADDRESS"] = "192.0.2.1:6379"  # an address that never answers
session = RaySession(nodes=int(sys.argv[1]), cpus_per_node=2, seconds=180)
session.start()

@ray.remote(num_cpus=0)
def where():
    return ray.get_runtime_context().get_node_id()

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ran_on = ray.get([where.options(scheduling_strategy=On(node, soft=False)).remote() for node in session.node_ids])
processes = psutil.Process().children(recursive=True)
listening = [
    connection.laddr.ip
    for process in [psutil.Process(), *processes]
    for connection in process.net_connections("inet")
    if connection.status == psutil.CONN_LISTEN
]
print(json.dumps({
    "address": session.address,
    "node_ids": session.node_ids,
    "ran_on": ran_on,
    "processes": [(process.name(), process.pid) for process in processes],
    "listening": listening,
    "authentication": os.environ["RAY_AUTH_MODE"],
}), flush=True)
sys.stdin.readline()
"""
"""A process that has a Ray of its own and waits for its end."""


def environment(temporary: Path, home: Path) -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return os.environ | {
        "PYTHONPATH": path,
        "TMPDIR": str(temporary),
        "HOME": str(home),
        "RAY_ENABLE_AUTO_CONNECT": "0",
    }


class Host:
    """A process with a Ray of its own."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.temporary, self.home = folder / "t", folder / "home"
        self.temporary.mkdir()
        self.home.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(nodes)],
            env=environment(self.temporary, self.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the host ended before its Ray had started"
        self.told = json.loads(line)
        self.processes = [psutil.Process(pid) for _, pid in self.told["processes"] if psutil.pid_exists(pid)]

    def named(self, start: str) -> psutil.Process:
        """One of the processes whose name began with `start` when all were running."""
        return psutil.Process(next(pid for name, pid in self.told["processes"] if name.startswith(start)))

    def directory(self) -> Path:
        (directory,) = self.temporary.glob("rdt-ray-*")
        return directory

    def left(self) -> list[psutil.Process]:
        """The processes still alive after all had time to end."""
        return psutil.wait_procs(self.processes, timeout=30)[1]


@contextmanager
def host(folder: Path, nodes: int = 1) -> Iterator[Host]:
    running = Host(folder, nodes)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()
        running.left()


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory whose path leaves room for the paths of Ray's sockets, which pytest's own does not."""
    with tempfile.TemporaryDirectory(prefix="rs", dir="/tmp") as folder:
        yield Path(folder)


def test_private_and_gone_after_an_interrupt(short: Path) -> None:
    with host(short, nodes=2) as ours:
        told = ours.told
        assert [name for name, _ in told["processes"]].count("raylet") == 2
        assert told["ran_on"] == told["node_ids"]
        assert told["listening"], "Ray listens nowhere?"
        assert set(told["listening"]) <= {"127.0.0.1", "::ffff:127.0.0.1"}
        assert told["authentication"] == "token"
        assert stat.S_IMODE(ours.directory().stat().st_mode) == 0o700
        with pytest.raises(RayProblem, match=r"^no Ray can be reached at 127.*[Aa]uthenticat") as refused:
            RaySession(address=told["address"], seconds=60).start()
        assert "\n" not in str(refused.value)
        with token_shown(str(ours.directory() / "token")), RaySession(told["address"], nodes=2) as joined:
            assert not joined.is_ours
            assert sorted(joined.node_ids) == sorted(told["node_ids"])
        assert ours.named("raylet").is_running()
        ray_keeper.sweep(ours.temporary)
        assert ours.directory().exists(), "what is in use is not swept away"
        ours.process.send_signal(signal.SIGINT)
        ours.process.wait(60)
        assert ours.left() == []
        assert list(ours.temporary.iterdir()) == []
        assert list(ours.home.iterdir()) == []


def test_gone_with_a_process_that_was_killed(short: Path) -> None:
    with host(short) as ours:
        ours.named("ray::").suspend()  # this one does not notice that its raylet is gone
        ours.process.kill()
        ours.process.wait(60)
        assert ours.left() == []
        assert list(ours.temporary.iterdir()) == []


def test_the_next_start_removes_what_a_killed_keeper_left(short: Path) -> None:
    with host(short) as ours:
        keeper = psutil.Process(ours.process.pid).children()[0]
        raylet = ours.named("raylet")
        worker = ours.named("ray::")
        worker.suspend()
        directory = ours.directory()
        keeper.kill()
        psutil.wait_procs([raylet], timeout=30)
        assert directory.exists()
        give_up = time.monotonic() + 60
        while directory.exists() and time.monotonic() < give_up:  # one of Ray's may outlive its raylet for a while
            ray_keeper.sweep(ours.temporary)
        assert not directory.exists()
        ours.process.kill()  # it does not wait for the keeper, which stays a zombie until it ends itself
        ours.process.wait()
        assert ours.left() == []


@contextmanager
def killer_of(name: str) -> Iterator[None]:
    """Kills the first process of that name that this one's descendants start."""
    over = threading.Event()

    def hunt() -> None:
        while not over.wait(0.01):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.name() == name:
                        process.kill()
                        return

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        yield
    finally:
        over.set()
        hunter.join()


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_start_that_fails_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, short: Path, others: set[psutil.Process]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short))
    session = RaySession(seconds=START)
    with killer_of(name), pytest.raises(RayProblem, match="Ray did not start: ") as problem:
        session.start()
    assert name in str(problem.value)
    assert "\n" not in str(problem.value)
    assert list(short.iterdir()) == []
    assert set(psutil.Process().children()) <= others
    assert "RAY_AUTH_TOKEN_PATH" not in os.environ


def test_a_start_that_takes_too_long(monkeypatch: pytest.MonkeyPatch, short: Path, others: set[psutil.Process]) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short))
    with pytest.raises(RayProblem, match=r"Ray did not start within 0\.01 s"):
        RaySession(seconds=0.01).start()
    assert list(short.iterdir()) == []
    assert set(psutil.Process().children()) <= others


@pytest.mark.parametrize("open_files", [0, 1_100])
def test_no_place_for_the_temporary_directory(open_files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, also in a process in which transports that never end have opened more than a thousand files."""
    monkeypatch.setattr("rdt_conformance.engines.ray_session._temporary_base", lambda: "/proc")
    allow_many_files()
    with contextlib.ExitStack() as opened:
        for _ in range(open_files):
            opened.enter_context(socket.socket())
        with pytest.raises(RayProblem, match=r"^Ray did not start: .*/proc"):
            RaySession(seconds=START).start()


@pytest.mark.parametrize(("free", "where"), [(1 << 40, "/dev/shm"), (64 << 20, "/somewhere")])
def test_the_object_store_goes_where_it_fits(free: int, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    assert ray_keeper._store_directory(Path("/somewhere"), nodes=2) == where


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and is no Ray
        started = time.monotonic()
        with pytest.raises(RayProblem, match=r"^no Ray can be reached at .*[^\n]*$"):
            RaySession(address=f"127.0.0.1:{silent.getsockname()[1]}", seconds=2).start()
        assert time.monotonic() - started < 30


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "nonsense"])
def test_addresses_that_cannot_be_used(address: str) -> None:
    with pytest.raises(RayProblem, match=address):
        RaySession(address=address).start()


def test_joining_leaves_the_other_as_it_was(
    monkeypatch: pytest.MonkeyPatch, short: Path, others: set[psutil.Process]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short))
    import ray

    handler, variables = signal.getsignal(signal.SIGTERM), dict(os.environ)
    with RaySession(seconds=START) as ours:
        with RaySession() as joined:
            assert joined.address == ours.address
            assert joined.node_ids == ours.node_ids
            assert (ours.is_ours, joined.is_ours) == (True, False)
        assert ray.is_initialized()
        with pytest.raises(RayProblem, match="another Ray already"):
            RaySession(address="192.0.2.1:6379").start()
        assert signal.getsignal(signal.SIGTERM) is handler
        processes = set(psutil.Process().children(recursive=True)) - others
        ours.stop()
        assert not [process for process in processes if process.is_running()]
    assert variables == dict(os.environ)
    assert not ray.is_initialized()
    assert set(psutil.Process().children()) <= others
    assert list(short.iterdir()) == []
