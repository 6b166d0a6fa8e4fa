"""Starts a Ray for a run, or joins one that is there, and leaves the machine as it was."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing.connection import wait
from typing import Any

from rdt_conformance.engines.places import NoGpus, Places, keep_gpus, let_go
from rdt_conformance.engines.ray_connection import (
    alive_nodes,
    connect,
    disconnect,
    loopback_stays,
    silenced,
    token_shown,
    unreachable,
)
from rdt_conformance.engines.ray_keeper import LOOPBACK, Order, one_line

STOP_SECONDS = 30.0
"""The most that disconnecting, and then ending our processes, may take each."""

GPU_SECONDS = 30.0
"""For Ray to hand over GPUs that nobody uses."""

_NOT_OURS = ("RAY_ADDRESS", "RAY_REDIS_ADDRESS", "RAY_GCS_SERVER_PORT", "RAY_TMPDIR", "RAY_AUTH_TOKEN")
"""Variables that would lead a Ray of our own to somebody else's."""


class RayProblem(Exception):
    """Ray cannot be started, reached or stopped. The message is one line, for the user."""


class RaySession:
    """A Ray that this process is connected to between :meth:`start` and :meth:`stop`. Also a context manager.

    Without `address` a cluster is started that is private: it listens on the loopback address only, asks for a token
    that only this user can read, and has its own temporary directory. It ends with :meth:`stop` or with this process,
    however that ends. Processes that Ray starts inherit the environment of this moment, less what names another Ray.

    A Ray that this process is connected to already is used as it is, and stays connected.

    Args:
        address: of an existing cluster, as ``host:port`` or ``auto``. It is not changed, only joined and left.
        nodes: how many nodes to start, all of which see the GPUs of this machine, or to use of an existing cluster.
        cpus_per_node: a number that Ray schedules by, whatever the machine has. Ignored if the cluster is not ours.
        seconds: the most that starting, or reaching `address`, may take.
    """

    node_ids: list[str]
    """The nodes to use, as hex: the one this process is connected to first, the others in a fixed order."""
    host: str
    """The address of this machine that they can reach."""

    def __init__(
        self, address: str | None = None, nodes: int = 1, cpus_per_node: int = 8, seconds: float = 120.0
    ) -> None:
        self.address = address
        self.is_ours = False
        self.node_ids = []
        self.host = LOOPBACK
        self._nodes = nodes
        self._cpus_per_node = cpus_per_node
        self._seconds = seconds
        self._leaving = contextlib.ExitStack()
        self._gpu_places: Places | NoGpus | None = None

    def start(self) -> None:
        """Start or join the cluster.

        Raises:
            RayProblem: that did not succeed. Nothing of ours is left then.
        """
        import ray

        try:
            if ray.is_initialized():
                self._use_connected()
            else:
                with loopback_stays():
                    if self.address is None:
                        self._start_own()
                    else:
                        self._join(self.address)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Leave the cluster, and end it if it is ours. Does nothing if that has been done.

        Raises:
            RayProblem: the cluster did not end by itself and was killed.
        """
        self._leaving.close()
        self._gpu_places = None
        self.is_ours = False

    def places(self, devices: Sequence[str]) -> Places:
        """Where actors can be placed that carry memory of these types of device. With cuda each gets a GPU.

        The GPUs are kept from the first time they are asked for until :meth:`stop`.

        Raises:
            RayProblem: a node has no free GPU. It is tried only once.
        """
        if "cuda" not in devices:
            return Places.on_nodes(self.node_ids)
        if self._gpu_places is None:
            try:
                self._gpu_places, groups = keep_gpus(self.node_ids, GPU_SECONDS)
                self._leaving.callback(let_go, groups)
            except NoGpus as problem:
                self._gpu_places = problem
        if isinstance(self._gpu_places, NoGpus):
            raise RayProblem(f"needs cuda: {self._gpu_places}")
        return self._gpu_places

    def __enter__(self) -> RaySession:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _use_connected(self) -> None:
        import ray

        connected = ray.get_runtime_context().gcs_address
        if self.address not in (None, "auto", connected):
            raise RayProblem(f"this process is connected to another Ray already, at {connected}, not {self.address}")
        self.address = connected
        self._choose_nodes()

    def _start_own(self) -> None:
        deadline = time.monotonic() + self._seconds
        order = Order(_temporary_base(), self._nodes, self._cpus_per_node)
        # A file, because nobody reads it unless something is wrong.
        printed = self._leaving.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        keeper = subprocess.Popen(
            [sys.executable, "-m", "rdt_conformance.engines.ray_keeper", json.dumps(asdict(order))],
            env=_own_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process alone, which then ends the cluster in order
        )
        self.is_ours = True
        self._leaving.callback(self._end_keeper, keeper)
        answer = self._answer(keeper, deadline)
        if answer is None:
            printed.seek(0)
            last = printed.read().decode(errors="replace").strip().split("\n")[-1]
            raise RayProblem(f"Ray did not start: {last or 'its keeper ended without a word'}")
        if "problem" in answer:
            raise RayProblem(f"Ray did not start: {answer['problem']}")
        self._leaving.enter_context(token_shown(answer["token"]))
        self._connect(answer["address"])
        self.address = answer["address"]
        self.node_ids = answer["node_ids"]

    def _answer(self, keeper: subprocess.Popen[str], deadline: float) -> dict[str, Any] | None:
        assert keeper.stdout is not None
        # Not by select, which knows no more than 1,024 descriptors: transports may have opened more in this process.
        if not wait([keeper.stdout.fileno()], max(0.0, deadline - time.monotonic())):
            raise RayProblem(f"Ray did not start within {self._seconds:g} s")
        line = keeper.stdout.readline()
        return json.loads(line) if line else None

    def _end_keeper(self, keeper: subprocess.Popen[str]) -> None:
        assert keeper.stdin is not None and keeper.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            # A word, not only the end of the pipe: a process that we have forked may hold that open.
            keeper.stdin.write("\n")
            keeper.stdin.close()
        try:
            keeper.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()  # which takes gcs_server and raylets with it
            keeper.wait()
            raise RayProblem(f"Ray did not stop within {STOP_SECONDS:g} s and was killed") from None
        finally:
            keeper.stdout.close()

    def _join(self, address: str) -> None:
        from ray._private import services

        if "://" in address:
            raise RayProblem(f"{address}: tensors cannot be sent through a Ray Client; give host:port or auto")
        try:
            found = services.canonicalize_bootstrap_address(address)
        except (ConnectionError, ValueError, OSError) as error:
            raise RayProblem(f"no Ray can be reached at {address}: {one_line(error)}") from None
        if found is None:
            raise RayProblem(f"no Ray can be reached at {address}: it names none")
        problem = unreachable(found, self._seconds)
        if problem:
            raise RayProblem(f"no Ray can be reached at {address}: {problem}")
        self._connect(address)
        self.address = found
        self._choose_nodes()

    def _choose_nodes(self) -> None:
        """Use as many nodes of an existing cluster as are wanted."""
        import ray

        alive = alive_nodes()
        if len(alive) < self._nodes:
            raise RayProblem(f"the Ray at {self.address} has {len(alive)} of {self._nodes} nodes")
        self.node_ids = alive[: self._nodes]
        self.host = ray.util.get_node_ip_address()

    def _connect(self, address: str) -> None:
        self._leaving.enter_context(silenced())
        try:
            connect(address)
        except Exception as error:
            raise RayProblem(f"Ray cannot be reached at {address}: {one_line(error)}") from error
        self._leaving.callback(disconnect, STOP_SECONDS)


def _temporary_base() -> str:
    """The usual temporary directory, or `/tmp` if the paths of Ray's sockets would get too long there."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= 48 or not os.access("/tmp", os.W_OK) else "/tmp"


def _own_environment() -> dict[str, str]:
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {name: value for name, value in os.environ.items() if name not in _NOT_OURS} | {"PYTHONPATH": path}
