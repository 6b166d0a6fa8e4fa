"""What is measured, from the receiver's side: transports, and raw loops that move the same bytes in one piece."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from rdt_conformance.bench.raw_libraries import read_by_nixl

from .source import (
    CLOCKS,
    PATIENCE_SECONDS,
    AnewSource,
    Load,
    MemorySource,
    NixlSource,
    Peer,
    SegmentSource,
    SocketSource,
    TransportSource,
    build,
    sleeping_agent,
    stamp,
    tensors_of,
)


@dataclass(frozen=True)
class Stages:
    """The seconds that one cycle spent in each call, measured in the process of the call."""

    extract: float
    recv: float
    gc: float

    @property
    def total(self) -> float:
        """What is compared: the time until the data are there."""
        return self.extract + self.recv


@dataclass(frozen=True)
class Options:
    """How to move a load, and how to time that.

    Args:
        buffers: into target buffers, or into fresh memory.
        clock: the name of one of the clocks.
    """

    buffers: bool
    clock: str


@lru_cache(maxsize=2)
def _buffers_for(load: Load) -> list[torch.Tensor]:
    """Where all contenders of a process receive."""
    return [torch.zeros_like(tensor) for tensor in tensors_of(load)]


class Contender(ABC):
    """Moves one load, again and again."""

    def __init__(self, peer: Peer, load: Load, options: Options) -> None:
        self.peer = peer
        self.load = load
        self._now = CLOCKS[options.clock]
        self.expected = tensors_of(load)
        self.buffers = _buffers_for(load) if options.buffers else None

    def cycle(self, turn: int, thorough: bool) -> Stages:
        """Do one cycle and verify its data: the stamp of this turn, or every byte."""
        for buffer in (self.buffers or []) if thorough else []:
            buffer.zero_()
        received, stages = self.move(turn)
        stamp(self.expected, turn)
        right = len(received) == len(self.expected) and torch.equal(received[0][:4], self.expected[0][:4])
        if not right or (thorough and not all(map(torch.equal, received, self.expected))):
            raise RuntimeError(f"wrong data in turn {turn}")
        return stages

    @abstractmethod
    def move(self, turn: int) -> tuple[list[torch.Tensor], Stages]:
        """One cycle: what came, and the time it took."""

    def timed(self, function: Any, *args: Any) -> tuple[Any, float]:
        """What the function gives, and the seconds it takes."""
        start = self._now()
        result = function(*args)
        return result, self._now() - start

    def close(self) -> None:
        """Give back what is held in this process."""
        self.buffers = None


class Transport(Contender):
    """A transport: extract, then fetch and wait, or send and recv at once, then garbage_collect."""

    def __init__(self, target: str, peer: Peer, load: Load, options: Options) -> None:
        super().__init__(peer, load, options)
        self._transport = build(target)
        self._source = peer.make(TransportSource, target, load, options.clock)

    def move(self, turn: int) -> tuple[list[torch.Tensor], Stages]:
        metadata, extract = self.peer.call(self._source, "extract", turn)
        communicator = self._transport.get_communicator_metadata(None, None, self._transport.tensor_transport_backend())
        call = self._transport, f"turn-{turn}", metadata, communicator, self.buffers
        if self._transport.is_one_sided():
            received, recv = self.timed(fetch, *call)
        else:
            self.peer.begin(self._source, "send", metadata, communicator)
            received, recv = self.timed(receive, *call)
            self.peer.end()
        gc = self.peer.call(self._source, "free", turn, metadata)
        return received, Stages(extract, recv, gc)


def fetch(transport: Any, obj_id: str, metadata: Any, communicator: Any, buffers: Any) -> list[torch.Tensor]:
    """The receiver's side of a one-sided transfer."""
    return transport.wait_fetch_complete(transport.fetch_multiple_tensors(obj_id, metadata, communicator, buffers))


def receive(transport: Any, obj_id: str, metadata: Any, communicator: Any, buffers: Any) -> list[torch.Tensor]:
    """That of a two-sided one."""
    # Without the argument where there are no buffers, as Ray calls it: two-sided transports need not have it.
    return transport.recv_multiple_tensors(obj_id, metadata, communicator, *([buffers] if buffers else []))


class Floor(Contender):
    """A raw loop in the receiver that moves the bytes of the load, as one tensor. All else is prepared beforehand."""

    def __init__(self, peer: Peer, load: Load, options: Options) -> None:
        super().__init__(peer, replace(load, count=1), options)

    def move(self, turn: int) -> tuple[list[torch.Tensor], Stages]:
        self.before(turn)
        received, recv = self.timed(self._into_memory)
        return [received], Stages(0.0, recv, 0.0)

    def _into_memory(self) -> torch.Tensor:
        # Of numpy, whose large arrays are in huge pages.
        tensor = self.buffers[0] if self.buffers else torch.from_numpy(np.empty(self.load.size, np.uint8))
        self.fill(tensor)
        return tensor

    @abstractmethod
    def before(self, turn: int) -> None:
        """Stamp the source's bytes."""

    @abstractmethod
    def fill(self, tensor: torch.Tensor) -> None:
        """Move them all."""


class Memcpy(Floor):
    """A copy within this process."""

    def before(self, turn: int) -> None:
        stamp(self.expected, turn)

    def fill(self, tensor: torch.Tensor) -> None:
        np.copyto(tensor.numpy(), self.expected[0].numpy())


class SharedSegment(Floor):
    """What shared memory takes at least: a copy in there by the source, and one out of there, if there are buffers."""

    def __init__(self, peer: Peer, load: Load, options: Options) -> None:
        super().__init__(peer, load, options)
        self._clock = options.clock
        self._source = peer.make(SegmentSource, self.load)
        with open(peer.call(self._source, "path"), "r+b") as file:
            self._segment = np.frombuffer(mmap.mmap(file.fileno(), self.load.size), np.uint8)

    def before(self, turn: int) -> None:
        self._packed = self.peer.call(self._source, "pack", turn, self._clock)

    def move(self, turn: int) -> tuple[list[torch.Tensor], Stages]:
        received, stages = super().move(turn)
        return received, replace(stages, extract=self._packed)

    def _into_memory(self) -> torch.Tensor:
        return super()._into_memory() if self.buffers else torch.from_numpy(self._segment)

    def fill(self, tensor: torch.Tensor) -> None:
        np.copyto(tensor.numpy(), self._segment)


class _Piece(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


class VmReadv(Floor):
    """``process_vm_readv``, one piece of memory in each call."""

    def __init__(self, peer: Peer, load: Load, options: Options) -> None:
        super().__init__(peer, load, options)
        self._source = peer.make(MemorySource, self.load)
        self._address = peer.call(self._source, "address")
        self._read = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._read.restype = ctypes.c_ssize_t

    def before(self, turn: int) -> None:
        self.peer.call(self._source, "stamp", turn)

    def fill(self, tensor: torch.Tensor) -> None:
        done, size, target = 0, self.load.size, tensor.data_ptr()
        while done < size:
            here, there = _Piece(target + done, size - done), _Piece(self._address + done, size - done)
            moved = self._read(self.peer.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            if moved <= 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            done += moved


class LoopbackSocket(Floor):
    """One connection, which stays."""

    def __init__(self, peer: Peer, load: Load, options: Options) -> None:
        super().__init__(peer, load, options)
        self._source = peer.make(SocketSource, self.load)
        self._socket = socket.create_connection(peer.call(self._source, "listen"), PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(None)

    def before(self, turn: int) -> None:
        self.peer.call(self._source, "stamp", turn)

    def fill(self, tensor: torch.Tensor) -> None:
        left = tensor.numpy().data
        self._socket.sendall(b"!")
        while left:
            moved = self._socket.recv_into(left, 0, socket.MSG_WAITALL)
            if not moved:
                raise EOFError("the source closed the connection")
            left = left[moved:]

    def close(self) -> None:
        self._socket.close()
        super().close()


class RawNixl(Floor):
    """One read by NIXL, of memory that is registered beforehand; so are the buffers, if there are any."""

    def __init__(self, peer: Peer, load: Load, options: Options) -> None:
        super().__init__(peer, load, options)
        self._source = peer.make(NixlSource, self.load)
        self._agent = sleeping_agent()
        self._name = self._agent.add_remote_agent(peer.call(self._source, "introduce"))
        self._there = self._agent.get_xfer_descs([(peer.call(self._source, "address"), load.size, 0)], "DRAM")
        if self.buffers:
            self._agent.register_memory(self.buffers)

    def before(self, turn: int) -> None:
        self.peer.call(self._source, "stamp", turn)

    def fill(self, tensor: torch.Tensor) -> None:
        registered = None if self.buffers else self._agent.register_memory([tensor])
        read_by_nixl(self._agent, self._agent.get_xfer_descs([tensor]), self._there, self._name)
        if registered is not None:
            self._agent.deregister_memory(registered)


class RawNixlAnew(Floor):
    """What a transport has to do of that for every object: register, tell, get to know, register here, and one read."""

    def __init__(self, peer: Peer, load: Load, options: Options) -> None:
        super().__init__(peer, load, options)
        self._clock = options.clock
        self._source = peer.make(AnewSource, self.load)
        self._agent = sleeping_agent()
        self._name = self._agent.add_remote_agent(peer.call(self._source, "introduce"))
        self._address = peer.call(self._source, "address")

    def move(self, turn: int) -> tuple[list[torch.Tensor], Stages]:
        self._turn = turn
        self._section, offer = self.peer.call(self._source, "offer", turn, self._clock)
        received, recv = self.timed(self._into_memory)
        self.peer.call(self._source, "withdraw")
        return [received], Stages(offer, recv, 0.0)

    def fill(self, tensor: torch.Tensor) -> None:
        self._agent.add_remote_agent(self._section)
        # Registrations of the same memory have to differ for NIXL, and the number of the device is all that may.
        here = [(tensor.data_ptr(), tensor.nbytes, self._turn)]
        there = self._agent.get_xfer_descs([(self._address, tensor.nbytes, self._turn)], "DRAM")
        registered = self._agent.register_memory([(*here[0], "")], "DRAM")
        read_by_nixl(self._agent, self._agent.get_xfer_descs(here, "DRAM"), there, self._name)
        self._agent.deregister_memory(registered)

    def before(self, turn: int) -> None:
        raise AssertionError("the source stamps as it offers")


FLOORS: dict[str, type[Floor]] = {
    "memcpy": Memcpy,
    "segment": SharedSegment,
    "vm_readv": VmReadv,
    "socket": LoopbackSocket,
    "nixl": RawNixl,
    "nixl-anew": RawNixlAnew,
}
