"""The other process: it holds the tensors and does what a source does, as the measuring process tells it to."""

from __future__ import annotations

import ctypes
import logging
import mmap
import multiprocessing
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from rdt_conformance.bench.raw_libraries import nixl_agent
from reference_transports.nixl.agent import sleeping_threads

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""What time is taken with. The processor time of a process, with all its threads, does not tell how long something
waits, but on a machine that is busy with other things it still tells how much there is to do."""
PATIENCE_SECONDS = 60.0
"""How long any one step may take, on either side."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Load:
    """What is carried: `size` bytes, spread evenly over `count` tensors."""

    size: int
    count: int
    seed: int


@lru_cache(maxsize=2)
def tensors_of(load: Load) -> list[torch.Tensor]:
    """Random bytes, the same in every process; each tensor in memory of its own.

    The contenders in a process share them: where in the machine's memory something lies can make a difference of a
    fifth.
    """
    flat = torch.from_numpy(np.random.default_rng(load.seed).integers(0, 256, load.size, np.uint8))
    return [part.clone() for part in flat.tensor_split(load.count)]


def stamp(tensors: list[torch.Tensor], turn: int) -> None:
    """Make what is sent in this turn differ from what was sent before."""
    tensors[0][:4] = torch.tensor([turn], dtype=torch.int32).view(torch.uint8)


def build(target: str) -> Any:
    """An instance of the transport that `target` names, as on the command line of the suite."""
    from rdt_conformance.target import resolve

    logging.disable(logging.INFO)  # the table is what is to be read
    return resolve(target).transport_class()


class TransportSource:
    """The source's side of one transport, with one load."""

    def __init__(self, target: str, load: Load, clock: str) -> None:
        self._transport = build(target)
        self._now = CLOCKS[clock]
        self._tensors = tensors_of(load)

    def extract(self, turn: int) -> tuple[Any, float]:
        """The object's metadata, and the seconds it took."""
        stamp(self._tensors, turn)
        start = self._now()
        metadata = self._transport.extract_tensor_transport_metadata(f"turn-{turn}", self._tensors)
        return metadata, self._now() - start

    def send(self, metadata: Any, communicator: Any) -> None:
        """Take part in a two-sided transfer."""
        self._transport.send_multiple_tensors(self._tensors, metadata, communicator)

    def free(self, turn: int, metadata: Any) -> float:
        """The seconds it took."""
        start = self._now()
        self._transport.garbage_collect(f"turn-{turn}", metadata, self._tensors)
        return self._now() - start


class MemorySource:
    """A load of one tensor, just there."""

    def __init__(self, load: Load) -> None:
        self._bytes = tensors_of(load)[0]

    def address(self) -> int:
        """Where they are in this process."""
        return self._bytes.data_ptr()

    def stamp(self, turn: int) -> None:
        """Make them differ from what they were before."""
        stamp([self._bytes], turn)


class SegmentSource(MemorySource):
    """Copies them into a segment of shared memory."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._file = os.fdopen(os.memfd_create("rdt-speed"), "r+b")
        self._file.truncate(load.size)
        self._segment = np.frombuffer(mmap.mmap(self._file.fileno(), load.size), np.uint8)

    def path(self) -> str:
        """Where the segment can be opened."""
        return f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    def pack(self, turn: int, clock: str) -> float:
        """The seconds it took."""
        self.stamp(turn)
        start = CLOCKS[clock]()
        np.copyto(self._segment, self._bytes.numpy())
        return CLOCKS[clock]() - start


def sleeping_agent() -> Any:
    """One whose thread leaves the processors to others, as that of the transport that it is held against."""
    with sleeping_threads():
        return nixl_agent()


class AnewSource(MemorySource):
    """Lets NIXL read them, each time as if for the first time."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._agent = sleeping_agent()

    def introduce(self) -> bytes:
        """How to reach this agent, and what another one has to know of what it has registered."""
        return self._agent.get_agent_metadata()

    def offer(self, turn: int, clock: str) -> tuple[bytes, float]:
        """Register them; what another agent has to know, and the seconds it took."""
        self.stamp(turn)
        start = CLOCKS[clock]()
        self._registered = self._agent.register_memory([(self.address(), self._bytes.nbytes, turn, "")], "DRAM")
        return self._agent.get_partial_agent_metadata(self._registered, False), CLOCKS[clock]() - start

    def withdraw(self) -> None:
        """Take them back."""
        self._agent.deregister_memory(self._registered)


class NixlSource(AnewSource):
    """Lets NIXL read them; they are registered for good."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._agent.register_memory([self._bytes])


class SocketSource(MemorySource):
    """Sends all of them over a connection, as often as it is asked to by one byte."""

    def listen(self) -> tuple[str, int]:
        """Where to connect to, once."""
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()
        return server.getsockname()

    def _serve(self, server: socket.socket) -> None:
        with server, server.accept()[0] as connection:
            while connection.recv(1):
                connection.sendall(self._bytes.numpy().data)


class Peer:
    """A process that holds the sources, on these cores."""

    def __init__(self, cores: Collection[int]) -> None:
        self.cores = cores
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_obey, args=(theirs, os.getpid(), cores), daemon=True)
        self._process.start()
        theirs.close()
        self._made = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid or 0

    def make(self, kind: type, *args: Any) -> int:
        """Build an object there; what it is called from now on."""
        self._made += 1
        self._ask("make", self._made, kind, args)
        return self._made

    def call(self, name: int, method: str, *args: Any) -> Any:
        """What a method of it gives."""
        return self._ask("call", name, method, args)

    def begin(self, name: int, method: str, *args: Any) -> None:
        """Return when the method is just about to be called; `end` must follow."""
        self._ask("begin", name, method, args)

    def end(self) -> Any:
        """What the method that was begun gave."""
        return self._answer()

    def forget(self) -> None:
        """Drop all objects."""
        self._ask("forget", 0, "", ())

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, *command: Any) -> Any:
        self._pipe.send(command)
        return self._answer()

    def _answer(self) -> Any:
        return answer(self._pipe, "the source")


def answer(pipe: Connection, who: str) -> Any:
    """What the process at the other end says: a value, or what went wrong there."""
    if not pipe.poll(PATIENCE_SECONDS):
        raise TimeoutError(f"{who} has not answered within {PATIENCE_SECONDS:.0f} s")
    value, problem = pipe.recv()
    if problem:
        raise RuntimeError(f"in {who}: {problem}")
    return value


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, also while it is stopped and cannot see that."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _obey(pipe: Connection, parent: int, cores: Collection[int]) -> None:
    """Serve a `Peer` until it closes its end, or is gone."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the measuring process, which then closes the pipe
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(1)
    objects: dict[int, Any] = {}
    while True:
        try:
            what, name, of, args = pipe.recv()
        except EOFError:
            return
        try:
            value = None
            if what == "make":
                objects[name] = of(*args)
            elif what == "forget":
                objects.clear()
            else:
                if what == "begin":
                    pipe.send((None, ""))
                value = getattr(objects[name], of)(*args)
            pipe.send((value, ""))
        except Exception:
            pipe.send((None, traceback.format_exc()))
