"""How this process connects to a Ray and leaves it, with as few traces in itself as Ray allows."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

from rdt_conformance.engines.ray_keeper import one_line

CONNECT_SECONDS = 10.0
"""The most that the first packets to an existing cluster and back may take."""
_PROBE = """
import sys
from ray._raylet import GcsClient
print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=float(sys.argv[2]))))
"""


def connect(address: str) -> None:
    """Connect to the Ray at `address`, ``host:port`` or ``auto``. What its workers print is not shown here.

    Raises:
        Exception: of whatever kind Ray raises if that fails.
    """
    import ray

    with _undisturbed():
        ray.init(
            address=address,
            namespace=f"rdt-conformance-{os.getpid()}",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )


def disconnect(seconds: float) -> None:
    """Disconnect, or give up after `seconds`."""
    import ray

    leaving = threading.Thread(target=ray.shutdown, name="rdt ray shutdown", daemon=True)
    leaving.start()
    leaving.join(seconds)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keep Ray from printing a paragraph for every process that is killed, which is what some checks are about."""
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def alive_nodes() -> list[str]:
    """The nodes of the Ray that this process is connected to, as hex: its own first, the others in order."""
    import ray

    mine = ray.get_runtime_context().get_node_id()
    return sorted((node["NodeID"] for node in ray.nodes() if node["Alive"]), key=lambda node: (node != mine, node))


def unreachable(address: str, seconds: float) -> str | None:
    """Why no Ray answers at `address`, or None if one does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), min(CONNECT_SECONDS, seconds)).close()
    except (OSError, ValueError, OverflowError) as error:
        return one_line(error)
    # In a process of its own, because Ray's client may try for minutes, or end its process if nobody answers.
    command = [sys.executable, "-c", _PROBE, address, str(seconds)]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:g} s"
    if probe.returncode:
        return probe.stderr.strip().split("\n")[-1] or f"exit status {probe.returncode}"
    return None


@contextlib.contextmanager
def token_shown(path: str) -> Iterator[None]:
    """Let this process show the token in the file `path` to the Ray that it connects to."""
    from ray import _raylet

    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN")
    before = {name: os.environ.get(name) for name in names}

    def have(wanted: dict[str, str | None]) -> None:
        for name, value in wanted.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        # Ray has read both before, maybe when it was imported.
        _raylet.Config.initialize("")  # pyright: ignore[reportAttributeAccessIssue]
        _raylet.AuthenticationTokenLoader.instance().reset_cache()  # pyright: ignore[reportAttributeAccessIssue]

    have({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": path, "RAY_AUTH_TOKEN": None})
    try:
        yield
    finally:
        have(before)


@contextlib.contextmanager
def loopback_stays() -> Iterator[None]:
    """Keep Ray from replacing a loopback address by one that others can reach, where a private Ray does not listen.

    The switch is Ray's own, for systems where its clusters never leave the machine.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """What Ray changes in this process when it connects is put back: its log level, the handler of SIGTERM."""
    logger = logging.getLogger("ray")
    level = logger.level
    handler = signal.getsignal(signal.SIGTERM)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
