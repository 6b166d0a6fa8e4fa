"""Starts a private Ray, keeps it while the process that asked for it lives, and takes it away without a trace.

A process of its own, so that Ray goes away even if the one that asked for it is killed: what that one holds of this one
is the other end of its standard input. Every process of the cluster descends from this one, also those whose parents
have died, since orphans come back here. So there is no guessing at the end which processes are ours. Ray itself runs in
a child: while it waits for its processes, it lets no other thread run.

Run as a program. The one argument is JSON (:class:`Order`), the one line printed is JSON too: ``{"address", "node_ids",
"token"}``, or ``{"problem"}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TextIO

import psutil

LOOPBACK = "127.0.0.1"
OBJECT_STORE = 200_000_000
"""Bytes per node. Tensors under test do not pass through it."""

_PREFIX = "rdt-ray-"
_RAYS = "r"
"""Ray's directory within ours: Ray opens the one that it is given to everybody."""
_SESSION = "session"
_SOCKET_PATH = 107
"""The longest path of a Unix socket, in bytes."""
_LONGEST_SOCKET = f"/{_PREFIX}12345678/{_RAYS}/{_SESSION}/sockets/plasma_store.99"
_REMOVE_SECONDS = 10.0
"""The most that removing what a killed keeper has left may take, for each of them."""
_POLITE = 3.0
"""Seconds that raylets get to see their workers off before everything is killed."""
_FIRM = 10.0
"""Seconds for what has been killed to be gone."""
_GLANCE = 0.25
"""Seconds between two looks at what no event tells: a death during the start, and a parent whose pipe lives on."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Order:
    """What to start."""

    base: str
    """Where the cluster's temporary directory is to be."""
    nodes: int
    cpus_per_node: int
    """A number that Ray schedules by, whatever the machine has."""


def keep(order: Order) -> None:
    """Start a cluster, say where it is, and keep it until a word from the parent, or the parent's death."""
    parent = os.getppid()
    _set_for_this_process(_PR_SET_CHILD_SUBREAPER, 1)
    directory = None
    try:
        sweep(Path(order.base))
        directory = _own_directory(order.base)
        starter, answer = _fork_starter(order, directory)
        vital: dict[int, str] = {}
        while True:
            ready = wait([stream.fileno() for stream in (sys.stdin, answer) if stream is not None], _GLANCE)
            # A process that the parent has forked may hold the pipe open after the parent's death.
            if sys.stdin.fileno() in ready or os.getppid() != parent:
                return
            if answer is not None and answer.fileno() in ready:
                print(answer.readline() or json.dumps({"problem": "it ended during the start"}), flush=True)
                answer = None
            if answer is not None:
                _check_vital(starter, vital, directory)
            _reap()
    except Exception as error:
        with contextlib.suppress(OSError):
            print(json.dumps({"problem": one_line(error)}), flush=True)
    finally:
        _end_processes()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def _fork_starter(order: Order, directory: Path) -> tuple[psutil.Process, TextIO]:
    """Fork a process that starts the cluster and then stays, as Ray's processes end with it; and where it answers."""
    reading, writing = os.pipe()
    keeper = os.getpid()
    starter = os.fork()
    if starter:
        os.close(writing)
        return psutil.Process(starter), os.fdopen(reading)
    try:
        _set_for_this_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:  # it has not died in between
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what Ray prints is no answer
            with os.fdopen(writing, "w") as answer:
                try:
                    json.dump(_start(order, directory), answer)
                except Exception as error:
                    json.dump({"problem": one_line(error)}, answer)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what ends from now on is gone at once
            while True:
                signal.pause()
    finally:
        os._exit(1)


def _start(order: Order, directory: Path) -> dict[str, object]:
    token = directory / "token"
    with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(os.urandom(32).hex())
    # Before Ray is imported: it reads them then. Its processes inherit them.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class BareNode(Node):
        """Without the API server, whose only use here would be to be waited for."""

        def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
            self._webui_url = ""

    nodes: list[Node] = []
    for _ in range(order.nodes):
        parameters = RayParams(
            gcs_address=nodes[0].gcs_address if nodes else None,
            session_name=None if nodes else _SESSION,
            temp_dir=str(directory / _RAYS),
            # Ray's processes listen on this address only, if and only if it is this one.
            node_ip_address=LOOPBACK,
            num_cpus=order.cpus_per_node,
            object_store_memory=OBJECT_STORE,
            plasma_directory=_store_directory(directory, order.nodes),
            include_dashboard=False,
            # Nobody reads what it would pass on. The annotation says str, Ray itself gives a bool.
            include_log_monitor=False,  # pyright: ignore[reportArgumentType]
            no_monitor=True,  # there is nothing to scale
            dashboard_agent_listen_port=0,
        )
        nodes.append(BareNode(parameters, head=not nodes, shutdown_at_exit=False, spawn_reaper=True))
    address = str(nodes[0].gcs_address)
    return {"address": address, "node_ids": [node.node_id for node in nodes], "token": str(token)}


def _check_vital(starter: psutil.Process, vital: dict[int, str], directory: Path) -> None:
    """Raises:
    RuntimeError: a process that Ray cannot do without has ended. `vital` remembers those that have been seen.
    """
    alive = set()
    # No grandchildren: what a raylet has just forked bears its name too, but soon runs another program.
    for child in starter.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() in ("gcs_server", "raylet"):
                vital[child.pid] = child.name()
                if child.status() != psutil.STATUS_ZOMBIE:
                    alive.add(child.pid)
    lost = next((name for pid, name in vital.items() if pid not in alive), None)
    if lost:
        raise RuntimeError(f"its {lost} ended during the start{_last_words(directory, lost)}")


def _last_words(directory: Path, name: str) -> str:
    for log in (f"{name}.err", f"{name}.out"):
        with contextlib.suppress(OSError):
            lines = (directory / _RAYS / _SESSION / "logs" / log).read_text(errors="replace").split("\n")
            told = [line for line in lines if " C " in line or " E " in line]
            if told:
                return f": {told[-1].strip()}"
    return ""


def _own_directory(base: str) -> Path:
    """A new directory that only this user can look into, locked for as long as this process lives."""
    if len(os.fsencode(base + _LONGEST_SOCKET)) > _SOCKET_PATH:
        raise OSError(f"the path of the temporary directory is too long for Ray's sockets: {base}")
    made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=base))
    _lock(made)
    # Under its final name only now, as whoever finds that name unlocked removes it.
    return made.rename(made.with_name(made.name[1:]))


def _lock(directory: Path) -> int | None:
    """A descriptor that holds the lock until it is closed, or None if another process holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def sweep(base: Path) -> None:
    """Remove what keepers have left in `base` that were killed themselves, processes included."""
    for directory in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid != os.getuid():
                continue
            lock = _lock(directory)
            if lock is not None:
                _remove(directory)
                os.close(lock)


def _remove(directory: Path) -> None:
    """Remove a directory that processes may still write to, and those processes."""
    give_up = time.monotonic() + _REMOVE_SECONDS
    while directory.exists() and time.monotonic() < give_up:
        _kill(lambda: _writing_below(directory))
        shutil.rmtree(directory, ignore_errors=True)  # fails if one that has just opened its log writes it meanwhile


def _writing_below(directory: Path) -> list[psutil.Process]:
    """Processes that have a file open below `directory`: those of Ray keep their logs there."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(directory in Path(file.path).parents for file in process.open_files()):
                found.append(process)
    return found


def _store_directory(directory: Path, nodes: int) -> str:
    """Shared memory if all the nodes' stores fit in, our own directory if not."""
    try:
        fits = shutil.disk_usage("/dev/shm").free > nodes * OBJECT_STORE
    except OSError:
        fits = False
    return "/dev/shm" if fits and os.access("/dev/shm", os.W_OK) else str(directory)


def _end_processes() -> None:
    me = psutil.Process()
    raylets = []
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == "raylet":
                child.terminate()
                raylets.append(child)
    psutil.wait_procs(raylets, timeout=_POLITE)
    _kill(lambda: me.children(recursive=True))


def _kill(find: Callable[[], list[psutil.Process]]) -> None:
    """Kill until nothing is found: a process may have started another one before it died."""
    for _ in range(5):
        found = find()
        if not found:
            return
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=_FIRM / 5)
        _reap()


def _reap() -> None:
    """Wait for ended orphans, as init would have done."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _set_for_this_process(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def one_line(error: Exception) -> str:
    """The first line of what `error` says, or its name if it says nothing."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    keep(Order(**json.loads(sys.argv[1])))
