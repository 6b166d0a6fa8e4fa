"""Starts a private Ray, keeps it while the process that asked for it lives, and takes it away without a trace.

A process of its own, so that Ray goes away even if the one that asked for it is killed: what that one holds of this one
is the other end of its standard input. Every process of the cluster descends from this one, also those whose parents
have died, since orphans come back here. So there is no guessing at the end which processes are ours.

Run as a program. The one argument is JSON (:class:`Order`), the one line printed is JSON too: ``{"address", "node_ids",
"token"}``, or ``{"problem"}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

LOOPBACK = "127.0.0.1"
OBJECT_STORE = 200_000_000
"""Bytes per node. Tensors under test do not pass through it."""

_PREFIX = "rdt-ray-"
_SESSION = "session"
_SOCKET_PATH = 107
"""The longest path of a Unix socket, in bytes."""
_LONGEST_SOCKET = f"/{_PREFIX}12345678/{_SESSION}/sockets/plasma_store.99"
_POLITE = 3.0
"""Seconds that raylets get to see their workers off before everything is killed."""
_FIRM = 10.0
"""Seconds for what has been killed to be gone."""
_GLANCE = 0.25
"""Seconds between two looks at what no event tells: a death during the start, and a parent whose pipe lives on."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Order:
    """What to start."""

    base: str
    """Where the cluster's temporary directory is to be."""
    nodes: int
    cpus_per_node: int
    """A number that Ray schedules by, whatever the machine has."""


class Keeper:
    """Keeps one cluster."""

    def __init__(self, order: Order, answers: TextIO) -> None:
        self._order = order
        self._answers = answers
        self._parent = os.getppid()
        self._vital: dict[int, str] = {}
        self._directory: Path | None = None
        self._started = False
        self._end = threading.Lock()

    def run(self) -> None:
        """Start the cluster, say where it is, and do not return."""
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            sweep(Path(self._order.base))
            self._directory = _own_directory(self._order.base)
            answer = self._start(self._directory)
        except Exception as error:
            self._give_up(_one_line(error))
        else:
            self._started = True
            signal.signal(signal.SIGCHLD, _reap)
            self._answer(answer)
            watcher.join()

    def _start(self, directory: Path) -> dict[str, object]:
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
        for _ in range(self._order.nodes):
            parameters = RayParams(
                gcs_address=nodes[0].gcs_address if nodes else None,
                session_name=None if nodes else _SESSION,
                temp_dir=str(directory),
                # Ray's processes listen on this address only, if and only if it is this one.
                node_ip_address=LOOPBACK,
                num_cpus=self._order.cpus_per_node,
                object_store_memory=OBJECT_STORE,
                plasma_directory=_store_directory(directory, self._order.nodes),
                include_dashboard=False,
                include_log_monitor=False,  # nobody reads what it would pass on
                no_monitor=True,  # there is nothing to scale
                dashboard_agent_listen_port=0,
            )
            nodes.append(BareNode(parameters, head=not nodes, shutdown_at_exit=False, spawn_reaper=True))
        address = str(nodes[0].gcs_address)
        return {"address": address, "node_ids": [node.node_id for node in nodes], "token": str(token)}

    def _watch(self) -> None:
        """End everything on a word from the parent, on its death, or when the start cannot succeed any more."""
        while True:
            told, _, _ = select.select([sys.stdin], [], [], _GLANCE)
            # A process that the parent has forked may hold the pipe open after the parent's death.
            if told or os.getppid() != self._parent:
                self._leave()
            if not self._started:
                lost = self._lost()
                if lost:
                    self._give_up(f"its {lost} ended during the start{self._last_words(lost)}")

    def _lost(self) -> str | None:
        """The name of a process that Ray cannot do without and that has ended."""
        alive = {}
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() in ("gcs_server", "raylet") and child.status() != psutil.STATUS_ZOMBIE:
                    alive[child.pid] = child.name()
        lost = next((name for pid, name in self._vital.items() if pid not in alive), None)
        self._vital |= alive
        return lost

    def _last_words(self, name: str) -> str:
        if self._directory is None:
            return ""
        for log in (f"{name}.err", f"{name}.out"):
            with contextlib.suppress(OSError):
                lines = (self._directory / _SESSION / "logs" / log).read_text(errors="replace").split("\n")
                told = [line for line in lines if " C " in line or " E " in line]
                if told:
                    return f": {told[-1].strip()}"
        return ""

    def _answer(self, answer: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            print(json.dumps(answer), file=self._answers, flush=True)

    def _give_up(self, problem: str) -> None:
        self._answer({"problem": problem})
        self._leave()

    def _leave(self) -> None:
        with self._end:  # never released: only one thread ends the process
            _end_processes()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
            os._exit(0)


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
                _kill(lambda directory=directory: _writing_below(directory))
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)


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
    raylets = [child for child in me.children() if child.name() == "raylet"]
    for raylet in raylets:
        with contextlib.suppress(psutil.NoSuchProcess):
            raylet.terminate()
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


def _reap(*_: object) -> None:
    """Wait for ended orphans, as init would have done."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    return lines[0] if lines else type(error).__name__


def main() -> None:
    """Keep the cluster that the argument orders."""
    # What Ray prints must not get between our lines.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _adopt_orphans()
    Keeper(Order(**json.loads(sys.argv[1])), answers).run()


if __name__ == "__main__":
    main()
