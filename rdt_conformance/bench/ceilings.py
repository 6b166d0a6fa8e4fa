"""What the machine itself can do, measured in the same run: raw loops that move as many bytes in one piece.

Only the moving counts: all that can be prepared is prepared beforehand. Into target buffers or into new memory, as the
transports of the same cell.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from rdt_conformance.bench.contents import Bytes, Contents, Load, address_of, flat, read_first, tensors_of
from rdt_conformance.bench.gpu_ceilings import GPU_CEILINGS
from rdt_conformance.bench.loop import Contender, Sample
from rdt_conformance.bench.process import PATIENCE_SECONDS, Remote

_MOST_MEMORY = 1 << 30
_clock = time.perf_counter
_cpu = time.process_time


class Ceiling:
    """A contender that fills the bytes of a load by one means.

    Args:
        source: the other process.
        load: what the transports carry; here it is one array of bytes.
    """

    new_memory: bool | None = None
    """Whether it fills memory that was never used; None: if the transports of the cell do."""

    def __init__(self, source: Remote, load: Load) -> None:
        self.counters: dict[str, float] = {}
        self._load = flat(load.nbytes, seed=load.seed, data_type="numpy.ndarray")
        self._contents = Contents(self._load)
        self._new = not load.buffers if self.new_memory is None else self.new_memory
        self._buffer: Bytes = tensors_of(self._load)[0]
        self._received: Bytes | None = None

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`."""
        self.before(turn)
        cpu, began = _cpu(), _clock()
        array = np.empty(self._load.nbytes, np.uint8) if self._new else self._buffer
        self._received = array = self.fill(array, turn)
        filled = _clock()
        read_first([array])
        ended = _clock()
        return Sample(wait=filled - began, first_read=ended - filled, whole=ended - began, cpu=_cpu() - cpu)

    def before(self, turn: int) -> None:
        """Let the source's bytes be those of this turn."""

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """Move all of them; the array that they are in."""
        raise NotImplementedError

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        received, self._received = self._received, None
        return self._contents.wrong([received], turn)

    def close(self) -> None:
        """See `loop.Contender`."""


class Memcpy(Ceiling):
    """A copy within this process, from and to memory that was used just before."""

    new_memory = False

    def before(self, turn: int) -> None:
        """See `Ceiling.before`."""
        np.copyto(self._buffer, self._contents.of(turn + 1))
        self._contents.of(turn).max(initial=0)

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        np.copyto(array, self._contents.of(turn))
        return array


class MemcpyFromMemory(Ceiling):
    """A copy within this process, from memory that was not used for so long that no cache holds it any more."""

    new_memory = False

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._part, self._turn = self._buffer, 0

    def before(self, turn: int) -> None:
        """See `Ceiling.before`."""
        self._part, self._turn = _beyond_caches().next(self._load.nbytes), turn

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        np.copyto(array, self._part)
        return array

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        received, self._received = self._received, None
        if turn != self._turn:
            return f"nothing was copied in turn {turn}"
        same = received is not None and np.array_equal(received, self._part)
        return "" if same else "other bytes than in the memory that was copied"


class _Ring:
    """Memory that is read bit by bit, from its beginning again when all of it has been read."""

    def __init__(self, nbytes: int) -> None:
        some = np.frombuffer(np.random.default_rng(0).bytes((1 << 20) + 1), np.uint8)
        self._bytes: Bytes = np.resize(some, nbytes)
        self._at = 0

    def next(self, nbytes: int) -> Bytes:
        """The next bytes, from a page of which nothing was read since the last time round."""
        if self._at + nbytes > len(self._bytes):
            self._at = 0
        if nbytes > len(self._bytes):  # of so many the caches hold none
            self._bytes = np.resize(self._bytes, nbytes)
        begin, self._at = self._at, self._at + -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        return self._bytes[begin : begin + nbytes]


@cache
def _beyond_caches() -> _Ring:
    """Memory of this process, for as long as it lives, of which the caches hold half at most."""
    return _Ring(2 * _bytes_of_caches())


def _bytes_of_caches() -> int:
    """As many as the system tells of."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return sum(int(size[:-1]) << {"K": 10, "M": 20}[size[-1]] for size in sizes) or 32 << 20


class FirstTouch(Ceiling):
    """New memory straight from the system, of which every page is written to, and nothing moved into it."""

    new_memory = False

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        new = np.frombuffer(mmap.mmap(-1, len(array), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        new[:: mmap.PAGESIZE] = 1
        return new

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`: no data, none wrong."""
        self._received = None
        return ""


class RawSource:
    """The bytes of a load in the source's process."""

    def __init__(self, load: Load) -> None:
        self._contents = Contents(load)
        self.bytes: Any = tensors_of(load)[0]
        """An array, or a tensor on a GPU."""

    def refill(self, turn: int) -> None:
        """Let them be those of a turn."""
        self._contents.fill([self.bytes], turn)

    def address(self) -> int:
        """Where they are in this process."""
        return address_of(self.bytes)


class FromSource:
    """The part of a contender that has to do with the source's process, in which its bytes lie, on whatever device."""

    raw_source: type[RawSource] = RawSource
    """What has them there."""

    def reach(self, source: Remote, load: Load) -> None:
        """Have it there."""
        self._remote = source
        self._source = source.make(self.raw_source, load)

    def ask(self, method: str, *args: Any) -> Any:
        """What a method of that returns."""
        return self._remote.call(self._source, method, *args)

    def before(self, turn: int) -> None:
        """Let the source's bytes be those of this turn. They are there when this returns."""
        self.ask("refill", turn)

    def close(self) -> None:
        """See `loop.Contender`."""
        self._remote.forget(self._source)


class Fetching(FromSource, Ceiling):
    """A ceiling whose bytes lie in the source's process."""

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self.reach(source, self._load)


class _Piece(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


class VmReadv(Fetching):
    """``process_vm_readv``, in as few calls as the kernel makes of it."""

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._address: int = self.ask("address")
        self._read = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._read.restype = ctypes.c_ssize_t

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        done, target = 0, address_of(array)
        while done < self._load.nbytes:
            left = self._load.nbytes - done
            here, there = _Piece(target + done, left), _Piece(self._address + done, left)
            moved = self._read(self._remote.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            if moved <= 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            done += moved
        return array


class SocketSource(RawSource):
    """Sends through a connection, when a byte asks it to."""

    def listen(self) -> tuple[str, int]:
        """Where to connect to, once."""
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()
        return server.getsockname()

    def _serve(self, server: socket.socket) -> None:
        with server, server.accept()[0] as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while connection.recv(1):
                connection.sendall(self.bytes.data)


class LoopbackSocket(Fetching):
    """One TCP connection, which stays; the source sends when a byte asks it to."""

    raw_source = SocketSource

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._socket = socket.create_connection(self.ask("listen"), PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        left = array.data
        self._socket.sendall(b"!")
        while left:
            moved = self._socket.recv_into(left)
            if not moved:
                raise EOFError("the source closed the connection")
            left = left[moved:]
        return array

    def close(self) -> None:
        """See `loop.Contender`."""
        self._socket.close()
        super().close()


CEILINGS: dict[str, type[Ceiling]] = {
    "memcpy": Memcpy,
    "memcpy from memory": MemcpyFromMemory,
    "first touch": FirstTouch,
    "process_vm_readv": VmReadv,
    "socket": LoopbackSocket,
}
"""By the names that tables show."""


def ceilings_for(device: str) -> list[str]:
    """The names of those that say something about memory of a type of device, as far as this machine has them."""
    if device == "cpu":
        room = min(_MOST_MEMORY, psutil.virtual_memory().available // 8)
        return [name for name in CEILINGS if name != "memcpy from memory" or 2 * _bytes_of_caches() <= room]
    return [name for name in GPU_CEILINGS if name != "peer copy" or torch.cuda.device_count() > 1]


def ceiling(name: str, source: Remote, load: Load) -> Contender:
    """Build a ceiling for any type of device."""
    return CEILINGS[name](source, load) if name in CEILINGS else GPU_CEILINGS[name](source, load)
