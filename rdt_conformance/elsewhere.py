"""Builds a transport in another, fresh process, as Ray does in every actor's, and tells what happened there.

The class travels pickled, as in `ray.experimental.rdt.util.register_custom_tensor_transports_on_actor`, and Ray's own
functions register and build it over there. Run as a program, this module is that other process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import psutil

from rdt_conformance.author import describe
from rdt_conformance.ray_quiet import no_auto_connect

if TYPE_CHECKING:
    from ray.experimental import TensorTransportManager

    from rdt_conformance.target import Target

LOAD_SECONDS = 60
"""For the class to be loaded, which may import a great deal."""
BUILD_SECONDS = 20
"""For it to be built, which should do next to nothing."""
_START_SECONDS = 180
"""For Python, Ray and the array library to be there."""

_OPENED = ("threads", "sockets", "child processes", "shared memory files", "memfds", "other descriptors")


@dataclass
class Elsewhere:
    """What happened in the other process."""

    refused: dict[str, str]
    """The ways in which the class could not be sent, and why."""
    started: bool = False
    """Whether the process came so far as to look at the class. If not, that says nothing about the class."""
    loaded: str = ""
    """The way in which it did come over: ``by reference`` or ``by value``; empty if it did not."""
    built: bool = False
    build_error: str = ""
    """What registering or building it raised."""
    needs_ray: bool = False
    """Whether it raised that because no Ray runs in the process."""
    opened: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by kind of what the process held after building and not before."""
    last_words: str = ""
    """The end of what it printed; the stacks of its threads if it was ended because it took too long."""


def build_elsewhere(target: Target) -> Elsewhere:
    """Send the class of `target` to a fresh process, which can import what this one can, and build it there."""
    sent, refused = _pickled(target.transport_class)
    order = (sent, refused, target.name.value, list(target.devices.value), target.data_type.value)
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    # A file, because a process that the transport starts may keep a pipe open for ever.
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
        )
        try:
            told, _ = process.communicate(pickle.dumps(order), _START_SECONDS + LOAD_SECONDS + BUILD_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
        printed.seek(0)
        last_words = printed.read().decode(errors="replace")[-3000:].strip()
    lines = told.splitlines()
    elsewhere = Elsewhere(**json.loads(lines[-1])) if lines else Elsewhere(refused)
    elsewhere.last_words = last_words
    return elsewhere


def _pickled(transport: type[TensorTransportManager]) -> tuple[dict[str, bytes], dict[str, str]]:
    """The class in the ways in which it can be sent, and why the others fail.

    By reference is Ray's way. By value is how authors send a class whose module is not there where the actors run.
    """
    from rdt_conformance import pickling

    ways = {
        "by reference": lambda: pickling.dumps(transport),
        "by value": lambda: pickling.dumps_by_value(transport, transport.__module__),
    }
    sent: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    for way, dump in ways.items():
        try:
            pickled = dump()
        except Exception as error:
            refused[way] = describe(error)
        else:
            if pickled is not None:
                sent[way] = pickled
    return sent, refused


def main() -> None:
    """Load and build the class that stands on standard input, and tell on standard output how far that came."""
    # What the author's code prints must not get between our lines.
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    no_auto_connect()
    sent, refused, name, devices, data_type = pickle.load(sys.stdin.buffer)

    from ray.experimental.rdt import util

    from rdt_conformance.engines.reference.errors import is_for_lack_of_ray
    from rdt_conformance.observe.resources import Watch

    util._ensure_default_transports_registered()
    elsewhere = Elsewhere(refused, started=True)
    print(json.dumps(asdict(elsewhere)), file=told)

    faulthandler.dump_traceback_later(LOAD_SECONDS, exit=True)
    transport = _load(sent, elsewhere)
    print(json.dumps(asdict(elsewhere)), file=told)
    if transport is None:
        return

    faulthandler.dump_traceback_later(BUILD_SECONDS, exit=True)
    before = Watch(memory=False)
    try:
        known = util.transport_manager_info.get(name)
        if known is None or known.transport_manager_class is not transport:
            util.register_tensor_transport(name, devices, transport, data_type)
        instance = util.get_tensor_transport_manager(name)
        elsewhere.built = isinstance(instance, transport)
    except Exception as error:
        elsewhere.build_error = describe(error)
        elsewhere.needs_ray = is_for_lack_of_ray(error)
    names = before.snapshot(addresses=True).names
    elsewhere.opened = {kind: names[kind] for kind in _OPENED if kind in names}
    print(json.dumps(asdict(elsewhere)), file=told)
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(0)  # a thread that the transport has started must not keep this process alive


def _load(sent: dict[str, bytes], elsewhere: Elsewhere) -> type[TensorTransportManager] | None:
    from rdt_conformance import pickling

    for way, pickled in sent.items():
        try:
            transport = pickling.loads(pickled)
        except Exception as error:
            elsewhere.refused[way] = describe(error)
        else:
            elsewhere.loaded = way
            return transport
    return None


if __name__ == "__main__":
    main()
