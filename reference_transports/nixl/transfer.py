"""One object on its way here, and the thread that helps those along that take a while."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import torch
from ray.experimental import TensorTransportMetadata

from reference_transports._layout import sizes
from reference_transports.nixl.agent import PATIENCE_SECONDS, Agent, Cell, Table
from reference_transports.nixl.memory import Memory, cut, joined, settle
from reference_transports.nixl.peer import ConnectionLost, Peer

_AT_ONCE = 1 << 20
"""Bytes up to which an object is fetched in the first step, if its source is near and known."""
_PIECES_AT_ONCE = 2
"""So many are on their way, so that the time between the end of one and the start of the next is not lost."""
_SPUN_SECONDS = 0.0001
"""For so long whoever waits looks again and again, which for a small read is all; then it pauses in between."""
_PAUSES_SECONDS = (0.00002, 0.001)
"""How long to pause before looking again whether a read is complete: at first, and at last."""


@dataclass
class NixlMetadata(TensorTransportMetadata):
    """The description of an object's tensors, and how to read them.

    Args:
        agent: the source's.
        token: what is in the object's cell for as long as it can be read.
        cell: address, size and registration number of the cell, as int64.
        places: the same of the bytes of each tensor.
        sections: what NIXL has to know of the source's memory, the cell's first.
        digest: of all this, for it goes to native code, which believes everything.
    """

    agent: str = ""
    token: bytes = field(default=b"", repr=False)
    cell: bytes = field(default=b"", repr=False)
    places: bytes = field(default=b"", repr=False)
    sections: list[bytes] = field(default_factory=list, repr=False)
    digest: bytes = field(default=b"", repr=False)

    def sealed(self) -> NixlMetadata:
        """The same, with the places of empty tensors if there are no others, and the digest."""
        self.places = self.places or bytes(24 * len(self.tensor_meta))
        self.digest = self.expected_digest()
        return self

    def expected_digest(self) -> bytes:
        """What the digest must be."""
        parts = self.agent.encode(), self.token, self.cell, self.places, *self.sections
        return blake2b(b"".join(parts), digest_size=16).digest()


def source_of(metadata: TensorTransportMetadata) -> NixlMetadata:
    """The metadata, as what they must be.

    Raises:
        ValueError: they come from another transport, or are not what the source made.
    """
    if not isinstance(metadata, NixlMetadata):
        raise ValueError(f"{type(metadata).__name__} is not the metadata of NIXL_REFERENCE")
    expected = sizes(metadata.tensor_meta)
    try:
        intact = metadata.digest == metadata.expected_digest()
    except (AttributeError, TypeError):
        intact = False
    if not intact or expected != _table(metadata.places)[:, 1].tolist():
        raise ValueError("garbled metadata: this is not what the source made")
    return metadata


def _table(data: bytes) -> Table:
    return np.frombuffer(data, np.int64).reshape(-1, 3)


class Transfer:
    """An object on its way here. Whoever waits for it moves it along; while nobody does, the mover.

    Args:
        obj_id: the object.
        engine: this process's.
        source: where it comes from.
        tensors: to be filled.
        lent: whether they are target buffers, to be left alone after an error; nobody sees others before the end.
    """

    def __init__(
        self, obj_id: str, engine: Engine, source: NixlMetadata, tensors: Sequence[torch.Tensor], lent: bool
    ) -> None:
        self.obj_id = obj_id
        self.failure: tuple[type[Exception], str] | None = None
        self._mover = engine.mover
        self._lent = lent
        self._ended = threading.Event()  # with or without a failure, as far as anybody outside can tell
        self._quiet = threading.Event()  # nothing will be written any more
        self._aborted = False
        self._writing = False  # into target buffers
        self._lock = threading.RLock()  # reentrant, because a garbage collection inside may drop a request
        self._claimed = False  # by somebody who waits for it
        self._turn = threading.Lock()  # held during a step
        self._steps = self._move(engine.agent, source, list(tensors))

    def begin(self) -> None:
        """Take the first step, which brings a small object here at once if its source is near and known."""
        with self._turn:
            self._advance()
        self._leave()

    def help(self) -> bool | None:
        """Take a step: whether there is only to wait now, or None if there is nothing for the mover to do any more."""
        if self._claimed or not self._turn.acquire(blocking=False):
            return None
        try:
            return self._advance()
        finally:
            self._turn.release()

    def see_through(self, timeout: float) -> bool:
        """Move it along for so many seconds, without limit if negative; whether it has ended."""
        if timeout == 0 or self._ended.is_set():
            return self._ended.is_set()
        deadline = math.inf if timeout < 0 else time.monotonic() + timeout
        self._claimed = True
        try:
            if self._turn.acquire(timeout=-1 if timeout < 0 else min(timeout, threading.TIMEOUT_MAX)):
                try:
                    self._work_until(deadline)
                finally:
                    self._turn.release()
        finally:
            self._leave()
        return self._ended.is_set()

    def _work_until(self, deadline: float) -> None:
        rest = _Rest()
        while not self._ended.is_set() and time.monotonic() < deadline:
            rest.pause() if self._advance() else rest.over()

    def _leave(self) -> None:
        """Let the mover do the rest."""
        self._claimed = False
        if not self._quiet.is_set():
            self._mover.add(self)

    def _advance(self) -> bool | None:
        try:
            return next(self._steps)
        except StopIteration:
            self._finish(None)
        except Exception as error:
            self._finish(error)
        except BaseException as interrupt:  # there are no steps after it: without a failure, that would be success
            self._finish(interrupt)
            raise
        return None

    def _finish(self, error: BaseException | None) -> None:
        self._end(error)
        self._quiet.set()

    def abort(self) -> None:
        """End it now; or, if it writes into target buffers, after the pieces that are on their way."""
        with self._lock:
            self._aborted = True
            if not self._writing:
                self._end(ConnectionAbortedError("it was aborted"))

    def stop(self) -> None:
        """Abort, and return when target buffers are left alone."""
        self.abort()
        # A finalizer may run on any thread, the one that advances included, and when there are no others any more.
        if self._writing and threading.current_thread().name != Mover.NAME and not sys.is_finalizing():
            self._quiet.wait(PATIENCE_SECONDS)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            if error is not None:
                kind = type(error) if type(error) is ConnectionAbortedError else ConnectionError
                self.failure = kind, f"object {self.obj_id} did not arrive: {error or type(error).__name__}"
            self._ended.set()

    def _move(self, agent: Agent, source: NixlMetadata, tensors: list[torch.Tensor]) -> Generator[bool, None, None]:
        total = sum(tensor.nbytes for tensor in tensors)
        if not total:
            return
        settle(tensors)
        cell = agent.take_cell()
        try:
            try:
                yield from self._read(agent, source, tensors, total, cell)
                return
            except ConnectionLost:
                # Perhaps by no fault of this object: UCX gives up a connection, with all that is under way on it, when
                # one read fails, as that of an object does that is freed meanwhile. No read is on its way any more.
                self._stop_writing()
            yield False
            self._demand_no_abort()
            yield from self._read(agent, source, tensors, total, cell, alone=True)
        finally:
            agent.give_cell(cell)

    def _read(
        self,
        agent: Agent,
        source: NixlMetadata,
        tensors: list[torch.Tensor],
        total: int,
        cell: Cell,
        *,
        alone: bool = False,
    ) -> Generator[bool, None, None]:
        with agent.connected(source.agent, source.sections, alone=alone) as peer:
            yield from self._look(agent, peer, source, cell)
            if total > _AT_ONCE:
                yield False
                settle(tensors)  # once more, for whatever thread goes on: it may need a CUDA context
            with closing(Memory(agent, tensors, offered=False)) as landing:
                landing.await_pack()
                yield from self._fill(agent, peer, source, landing, total)
                yield from self._look(agent, peer, source, cell)
                landing.unpack()
                settle(tensors)

    def _look(self, agent: Agent, peer: Peer, source: NixlMetadata, cell: Cell) -> Generator[bool, None, None]:
        """See that the object is still there."""
        yield from agent.read(peer, (cell.table, "cpu"), (_table(source.cell), "cpu"))
        if cell.view.tobytes() != source.token:
            raise ConnectionError("its source has freed it")

    def _fill(
        self, agent: Agent, peer: Peer, source: NixlMetadata, landing: Memory, total: int
    ) -> Generator[bool, None, None]:
        """Read the bytes, piece by piece; when it ends, none is on its way any more, also if one of them failed."""
        assert source.tensor_device is not None
        pace = peer.paces.of(source.tensor_device, landing.device)
        local, remote = joined(landing.places, _table(source.places))
        begin = 0
        reads: deque[tuple[Generator[bool, None, None], int, float]] = deque()
        failures: list[Exception] = []
        try:
            while reads or (begin < total and not failures):
                try:
                    while begin < total and len(reads) < _PIECES_AT_ONCE and not failures:
                        self._begin_to_write()
                        end = min(begin + pace.piece, total)
                        here, there = (cut(table, begin, end) for table in (local, remote))
                        read = agent.read(peer, (here, landing.device), (there, source.tensor_device))
                        reads.append((read, end - begin, time.monotonic()))
                        begin = end
                        next(read, None)  # which starts it
                except Exception as error:
                    failures.append(error)
                if reads:
                    read, nbytes, started = reads[0]
                    try:
                        yield from read
                        pace.count(nbytes, time.monotonic() - started)
                    except Exception as error:
                        failures.append(error)
                    reads.popleft()
                    if reads:
                        yield False
            if failures:
                raise failures[0]
        finally:
            failures.clear()  # they refer to this frame, which would keep what was to be filled
            for read, *_ in reads:  # there are some only if this one is given up in the middle
                read.close()

    def _demand_no_abort(self) -> None:
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("it was aborted")

    def _begin_to_write(self) -> None:
        with self._lock:
            self._demand_no_abort()
            self._writing = self._lent

    def _stop_writing(self) -> None:
        with self._lock:
            self._writing = False
            self._demand_no_abort()


class Mover:
    """A thread that helps transfers along. It ends when it is closed and has none any more."""

    NAME = "rdt-nixl"

    def __init__(self) -> None:
        self._closed = False
        self._added: list[Transfer] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=self.NAME, daemon=True)
        self._thread.start()

    def add(self, transfer: Transfer) -> None:
        """Help the transfer along, until it has ended or is claimed."""
        with self._news:
            self._added.append(transfer)
            self._news.notify()

    def close(self) -> None:
        """Expect no more transfers."""
        self._closed = True
        with self._news:
            self._news.notify()

    def _run(self) -> None:
        under_way: list[Transfer] = []
        rest = _Rest()
        while True:
            with self._news:
                if not under_way:
                    self._news.wait_for(lambda: self._added or self._closed)
                if self._added:
                    rest.over()
                under_way = list(dict.fromkeys([*under_way, *self._added]))
                self._added.clear()
            if not under_way:
                return
            waits = [transfer.help() for transfer in under_way]
            under_way = [transfer for transfer, wait in zip(under_way, waits, strict=True) if wait is not None]
            rest.pause() if all(waits) else rest.over()


class Engine:
    """All that a process needs in order to transfer anything."""

    def __init__(self) -> None:
        self.agent = Agent()
        self.mover = Mover()


class _Rest:
    """The time until something has happened for which there is no event."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def over(self) -> None:
        """It has happened."""
        self._since = time.monotonic()

    def pause(self) -> None:
        """Let others run: for a twenty-fifth of the time so far, so that hardly more than that is lost."""
        waited = time.monotonic() - self._since
        shortest, longest = _PAUSES_SECONDS
        time.sleep(0 if waited < _SPUN_SECONDS else min(max(waited / 25, shortest), longest))
