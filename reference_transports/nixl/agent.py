"""What a process has of NIXL: an agent, the memory that is registered with it, the peers that it knows."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from reference_transports.nixl.pace import Paces
from reference_transports.nixl.unreachable import Unreachable

Table: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""Pieces of memory: for each its address, its size, and the number under which it is registered."""

CELL_BYTES = 16
_CELLS = 4096
"""How many cells are registered at once."""
_MOST_PEERS = 1024
"""How many peers are known at a time, unless more are in use."""
_MOST_TOLD = 256 << 10
"""How many bytes of sections NIXL is told of a peer before it is made to forget it all: it keeps some twenty times as
much. A section has 250 bytes and more. To get to know the peer anew takes some milliseconds, and a socket at either end
that NIXL never closes (nixl#2025)."""
_MARKS = 1 << 14
"""Bits by which a process knows what it has told NIXL of a peer. Of a thousand sections thirty seem to be known and are
not, and so count for nothing."""
_MOST_RETIRED, _MOST_RETIRED_BYTES = 128, 256 << 10
"""How many sections of its own memory, and bytes of them, a process keeps for later: what it keeps, nobody need be told
again. Where memory never comes twice, so many are there after as many objects: more would look like a leak for long."""

_THREAD_PAUSE = 1000
"""Microseconds after which NIXL's thread looks again if UCX has not woken it."""
_MEMORY_HOOKS = "UCX_MEM_EVENTS"
_MAKING = threading.RLock()
"""Held while what all agents are made of is changed."""

PATIENCE_SECONDS = 5.0
"""How long whoever gives up a read waits until nothing is written any more."""
_PAUSE_SECONDS = 0.001
_SEGMENTS = {"cpu": "DRAM", "cuda": "VRAM"}
"""Device types, and what NIXL calls their memory."""


class Registration:
    """Memory that NIXL may use, until it is closed or the agent is gone.

    `section` is what another agent has to know in order to read it, if it is to be read by others.

    Args:
        nixl: the agent.
        table: the memory.
        device: type of the device that it is on.
    """

    def __init__(self, nixl: Any, table: Table, device: str) -> None:
        self.table = table
        self.section = b""
        self._nixl = nixl
        self._registered: Any = nixl.register_memory(table.astype(np.uint64), _SEGMENTS[device])

    def describe(self, *, introduce: bool = False) -> bytes:
        """Make the section; with `introduce` it also tells how to reach this agent."""
        self.section = self._nixl.get_partial_agent_metadata(self._registered, introduce)
        return self.section

    def close(self) -> None:
        """Take the memory away from NIXL."""
        self._nixl.deregister_memory(self._registered)


@dataclass(frozen=True)
class Cell:
    """A few bytes of memory that stays registered: a token, or the place to read one into.

    Args:
        view: the bytes.
        table: where they are.
        section: what another agent has to know in order to read them, and to reach this one.
    """

    view: np.ndarray[Any, Any]
    table: Table
    section: bytes


@dataclass(frozen=True)
class _Retired:
    """What was offered: the table and the section of a registration that is closed."""

    table: Table
    section: bytes


class _RetiredSections:
    """The last of what was offered, by the memory. Not thread-safe."""

    def __init__(self) -> None:
        self._last: OrderedDict[bytes, _Retired] = OrderedDict()
        self._bytes = 0

    def add(self, retired: _Retired) -> None:
        self.pop(retired.table[:, :2])
        self._last[_key(retired.table[:, :2])] = retired
        self._bytes += len(retired.section)
        while len(self._last) > _MOST_RETIRED or self._bytes > _MOST_RETIRED_BYTES:
            self._bytes -= len(self._last.popitem(last=False)[1].section)

    def pop(self, regions: npt.ArrayLike) -> _Retired | None:
        retired = self._last.pop(_key(regions), None)
        self._bytes -= len(retired.section) if retired else 0
        return retired


def _key(regions: npt.ArrayLike) -> bytes:
    return np.array(regions, np.int64).tobytes()


@dataclass
class _Peer:
    told: bytearray = field(default_factory=lambda: bytearray(_MARKS // 8))
    """A bit for each section that NIXL has been told, by its hash: no larger for many than for few."""
    told_bytes: int = 0
    transfers: int = 0
    """How many are under way."""
    failed: bool = False
    paces: Paces = field(default_factory=Paces)

    def count(self, section: bytes) -> None:
        """Count a section that NIXL has been told, the first time."""
        byte, bit = divmod(hash(section) % _MARKS, 8)
        if not self.told[byte] >> bit & 1:
            self.told[byte] |= 1 << bit
            self.told_bytes += len(section)


@contextmanager
def sleeping_threads() -> Iterator[None]:
    """Let the agents that are made meanwhile have threads that sleep until there is something to do.

    NIXL's Python interface has them look again and again without a pause, and offers no choice: every agent takes a
    whole processor, also while nothing happens, and on a machine with few of them transfers take three times as long.
    """
    bindings: Any = import_module("nixl._api").nixlBind
    with _MAKING:
        usual = bindings.nixlAgentConfig

        class Sleeping(usual):
            def __setattr__(self, name: str, value: Any) -> None:
                super().__setattr__(name, _THREAD_PAUSE if name == "pthrDelay" else value)

        bindings.nixlAgentConfig = Sleeping
        try:
            yield
        finally:
            bindings.nixlAgentConfig = usual


@contextmanager
def no_memory_hooks() -> Iterator[None]:
    """Keep UCX, if it is loaded meanwhile, from patching the functions by which this process gets and frees memory.

    It does that to know when memory is gone whose registration it has cached. All memory here is registered with NIXL
    for as long as it is used; and to find what to patch takes half a second where torch is loaded. With GPUs it also
    learns by it whose memory is whose: there it may. What UCX has read of the environment stays so, for others in this
    process as well, such as Ray's own NIXL, if they come later; to them it makes no other difference.
    """
    with _MAKING:
        if _MEMORY_HOOKS in os.environ or torch.cuda.is_available():
            yield
            return
        os.environ[_MEMORY_HOOKS] = "n"
        try:
            yield
        finally:
            os.environ.pop(_MEMORY_HOOKS, None)


class Agent:
    """This process, as its peers know it. Any thread may call anything here.

    Raises:
        ImportError: NIXL is not installed.
    """

    def __init__(self) -> None:
        try:
            from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t
        except ImportError as error:
            raise ImportError(f"this needs NIXL 1.1 or newer: pip install nixl ({error})") from error
        self.name = uuid.uuid4().hex
        self.process = os.getpid()
        # NIXL does not lock by itself. It does have a thread, which makes progress where UCX needs the source's help.
        config = nixl_agent_config(backends=["UCX"], sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
        with sleeping_threads(), no_memory_hooks():
            self._nixl: Any = nixl_agent(self.name, config)
        # Reentrant: Python's garbage collector may drop the last reference to an object of Ray's in the middle of any
        # line here, and with it call the transport's garbage_collect in the same thread.
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._retired = _RetiredSections()
        self._cells: list[Cell] = []
        self._unused_cells: Iterator[Cell] = iter(())
        self._peers: OrderedDict[str, _Peer] = OrderedDict()  # the least recently used first
        self._unreachable = Unreachable()

    def register(self, regions: Sequence[tuple[int, int]], device: str) -> Registration:
        """Register memory, given by addresses and sizes, all on one type of device, under new numbers."""
        table = np.array([(*region, next(self._numbers)) for region in regions], np.int64)
        return Registration(self._nixl, table, device)

    def offer(self, regions: Sequence[tuple[int, int]], device: str) -> Registration:
        """Register memory that others are to read.

        If the same was offered before, and NIXL's keys to it have not changed, it gets its former numbers: whoever has
        read it learns nothing new, of which NIXL would keep every bit.
        """
        with self._lock:
            former = self._retired.pop(regions)
        if former is not None:
            registration = Registration(self._nixl, former.table, device)
            if registration.describe() == former.section:
                return registration
            registration.close()
        registration = self.register(regions, device)
        registration.describe()
        return registration

    def withdraw(self, registration: Registration) -> None:
        """Close a registration, and remember its numbers if it was offered."""
        registration.close()
        if registration.section:
            with self._lock:
                self._retired.add(_Retired(registration.table, registration.section))

    def take_cell(self) -> Cell:
        """A cell that nobody else uses."""
        with self._lock:
            if self._cells:
                return self._cells.pop()
            cell = next(self._unused_cells, None)
            if cell is None:
                self._unused_cells = self._more_cells()
                cell = next(self._unused_cells)
            return cell

    def give_cell(self, cell: Cell) -> None:
        """Wipe the cell, for anybody to use."""
        cell.view[:] = 0
        with self._lock:
            self._cells.append(cell)

    def _more_cells(self) -> Iterator[Cell]:
        """Cells of newly registered memory, each made when it is asked for: most processes need few."""
        memory = np.zeros((_CELLS, CELL_BYTES), np.uint8)  # kept by the cells' views
        registration = self.register([(memory.ctypes.data, memory.nbytes)], "cpu")  # for good
        section = registration.describe(introduce=True)
        tables = np.repeat(registration.table, _CELLS, axis=0)
        tables[:, 0] += np.arange(0, memory.nbytes, CELL_BYTES)
        tables[:, 1] = CELL_BYTES
        return (Cell(view, table[np.newaxis], section) for view, table in zip(memory, tables, strict=True))

    @contextmanager
    def connected(self, name: str, sections: Sequence[bytes]) -> Iterator[Paces]:
        """Make a peer known to NIXL for the time of a transfer; gives what is known of how fast it is.

        Args:
            name: of the peer's agent, or of this one.
            sections: of the peer's memory.
        """
        with self._lock:
            peer = self._peers.get(name)
            if peer is not None and peer.told_bytes > _MOST_TOLD and not peer.transfers:
                self._forget(name)
                peer = None
            if peer is None:
                self._make_room()
                peer = self._peers[name] = _Peer()
            self._peers.move_to_end(name)
            peer.transfers += 1
        try:
            with self._failing(peer):
                for section in sections if name != self.name else ():
                    with self._unreachable.reaching(section):
                        self._nixl.add_remote_agent(section)  # what NIXL knows already it finds to be so
                    peer.count(section)
            yield peer.paces
        finally:
            with self._lock:
                peer.transfers -= 1
                if peer.failed and not peer.transfers:
                    self._forget(name)

    @contextmanager
    def _failing(self, peer: _Peer) -> Iterator[None]:
        """See to it that a peer with whom something went wrong is forgotten, once nothing comes from there any more."""
        try:
            yield
        except Exception:
            peer.failed = True
            raise

    def _make_room(self) -> None:
        idle = [name for name, peer in self._peers.items() if not peer.transfers]
        if idle and len(self._peers) >= _MOST_PEERS:
            self._forget(idle[0])

    def _forget(self, name: str) -> None:
        del self._peers[name]
        with suppress(Exception):  # NIXL may have done so by itself
            self._nixl.remove_remote_agent(name)

    def read(self, name: str, local: tuple[Table, str], remote: tuple[Table, str]) -> Generator[bool, None, None]:
        """Read a connected peer's memory into registered memory of this process; yields True whenever it has to wait.

        Args:
            name: the peer.
            local: where to, and on what type of device.
            remote: where from, likewise, in as many pieces of the same sizes.

        Raises:
            Exception: NIXL's. Nothing will be written any more.
        """
        into, of = (
            self._nixl.get_xfer_descs(table.astype(np.uint64), _SEGMENTS[device]) for table, device in (local, remote)
        )
        with self._failing(self._peers[name]):
            handle, state = self._nixl.initialize_xfer("READ", into, of, name), ""
            try:
                state = self._nixl.transfer(handle)
                while state == "PROC":
                    yield True
                    state = self._nixl.check_xfer_state(handle)
            finally:
                # Only when it has ended: UCX would go on writing, and nobody could tell how long.
                if state == "PROC":
                    self._see_through(handle)
                with suppress(Exception):
                    self._nixl.release_xfer_handle(handle)
            if state != "DONE":
                raise ConnectionError("NIXL could not read it")

    def _see_through(self, handle: Any) -> None:
        """Wait for the end of a transfer that was given up in the middle, but not for ever."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        with suppress(Exception):
            while self._nixl.check_xfer_state(handle) == "PROC" and time.monotonic() < give_up:
                time.sleep(_PAUSE_SECONDS)
