"""What a process has of NIXL: an agent, the memory that is registered with it, the peers that it knows."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from reference_transports.nixl.peer import Peer
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
        self._peers: OrderedDict[str, Peer] = OrderedDict()  # by their agents; the least recently used first
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
    def connected(self, name: str, sections: Sequence[bytes], *, alone: bool = False) -> Iterator[Peer]:
        """Make a peer known to NIXL for the time of a transfer.

        Args:
            name: of the peer's agent, or of this one.
            sections: of the peer's memory.
            alone: on a new connection that no other transfer uses, unless that is to this process itself. In the end it
                is kept if there is no other.

        Raises:
            ConnectionLost: the connection to it broke. A new one is made for whoever asks again.
            Exception: NIXL's. It could not be reached.
        """
        peer = self._join(name, alone)
        try:
            for section in sections if name != self.name else ():
                self._tell(peer, section, name)
            yield peer
        finally:
            with self._lock:
                peer.transfers -= 1
                if peer.has_failed or self._peers.setdefault(name, peer) is not peer:
                    self._leave(name, peer)

    def _join(self, name: str, alone: bool) -> Peer:
        """The connection to a peer, with one more transfer on it; a new one if it has failed or grown too large."""
        with self._lock:
            peer = self._peers.get(name)
            if peer is not None and (peer.has_failed or (peer.told_bytes > _MOST_TOLD and not peer.transfers)):
                self._leave(name, peer)
                peer = None
            if peer is None or alone:
                self._make_room()
                peer = Peer(name if name == self.name else uuid.uuid4().hex)
            if not alone:
                self._peers[name] = peer
                self._peers.move_to_end(name)
            peer.transfers += 1
            return peer

    def _tell(self, peer: Peer, section: bytes, name: str) -> None:
        """Tell NIXL a section of a peer, under the name of this connection.

        Under the peer's own name no second connection could be made while the first, which has failed, is still in use.
        Nor ever again if it failed just now, of which NIXL (1.5) forgets one half and not the other.
        """
        alias = section.replace(name.encode(), peer.name.encode())
        with peer.noting_failure(), nullcontext() if peer.has_worked else self._unreachable.reaching(section):
            told = self._nixl.add_remote_agent(alias)  # what NIXL knows already it finds to be so
            if told not in (peer.name, peer.name.encode()):
                raise ConnectionError(f"NIXL calls a peer {told!r} that is to be called {peer.name!r}")
        peer.count(section)

    def _make_room(self) -> None:
        idle = [name for name, peer in list(self._peers.items()) if not peer.transfers]
        if idle and len(self._peers) >= _MOST_PEERS:
            self._leave(idle[0], self._peers[idle[0]])

    def _leave(self, name: str, peer: Peer) -> None:
        """Let nobody else use a connection, and have NIXL forget it once nothing comes from there any more."""
        if self._peers.get(name) is peer:
            del self._peers[name]
        if not peer.transfers and peer.name != self.name:
            with suppress(Exception):  # NIXL may have done so by itself
                self._nixl.remove_remote_agent(peer.name)

    def read(self, peer: Peer, local: tuple[Table, str], remote: tuple[Table, str]) -> Generator[bool, None, None]:
        """Read a connected peer's memory into registered memory of this process; yields True whenever it has to wait.

        Args:
            peer: where from.
            local: where to, and on what type of device.
            remote: where from, likewise, in as many pieces of the same sizes.

        Raises:
            ConnectionLost: the connection, which had worked, did not any more. Nothing will be written any more.
            Exception: NIXL's, of a connection that has never worked; likewise.
        """
        into, of = (
            self._nixl.get_xfer_descs(table.astype(np.uint64), _SEGMENTS[device]) for table, device in (local, remote)
        )
        with peer.noting_failure():
            handle, state = self._nixl.initialize_xfer("READ", into, of, peer.name), ""
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
            peer.has_worked = True

    def _see_through(self, handle: Any) -> None:
        """Wait for the end of a transfer that was given up in the middle, but not for ever."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        with suppress(Exception):
            while self._nixl.check_xfer_state(handle) == "PROC" and time.monotonic() < give_up:
                time.sleep(_PAUSE_SECONDS)
