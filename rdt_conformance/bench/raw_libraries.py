"""What transports are made of, by itself: a library moves as many bytes in one piece, told by the shortest program.

All that can be prepared is prepared beforehand, as by `ceilings.Ceiling`. They are peers, named with ``--rdt-peers``.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rdt_conformance.bench.ceilings import Fetching, RawSource
from rdt_conformance.bench.contents import Bytes, Load, address_of
from rdt_conformance.bench.process import PATIENCE_SECONDS, Remote

STORE = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]
PATIENCE = timedelta(seconds=PATIENCE_SECONDS / 2)
"""Less than whoever waits for the process has, who would otherwise take it for gone, and all others in it with it."""
RECEIVER, SOURCE = 0, 1
"""Ranks."""
_REQUEST, _DATA = 0, 1
"""Tags."""


_SEGMENTS = {"cpu": "DRAM", "cuda": "VRAM"}
"""What NIXL calls the memory of a type of device. Whatever it is, it is number 0 of its process."""


class NixlSource(RawSource):
    """Memory that others may read by NIXL."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._agent = nixl_agent()
        place = (self.address(), load.nbytes, 0, "")
        self._registered = self._agent.register_memory([place], _SEGMENTS[load.device])

    def introduce(self) -> bytes:
        """What the reader's agent has to know."""
        return self._agent.get_agent_metadata()


class NixlReader:
    """Reads the memory of a `NixlSource`, again and again.

    Args:
        load: what lies there.
        introduction: what the source tells of its agent.
        address: where it lies there.
        buffer: memory that all reads go to, which is registered at once; None if each goes to another.
    """

    def __init__(self, load: Load, introduction: bytes, address: int, buffer: Any) -> None:
        self._agent = nixl_agent()
        self._nbytes, self._segment = load.nbytes, _SEGMENTS[load.device]
        self._peer = self._agent.add_remote_agent(introduction)
        self._there = self._agent.get_xfer_descs([(address, load.nbytes, 0)], self._segment)
        self._ready = None if buffer is None else self._register(address_of(buffer))

    def _register(self, address: int) -> Any:
        return self._agent.register_memory([(address, self._nbytes, 0, "")], self._segment)

    def read(self, into: Any) -> None:
        """Read all of it. New memory is registered for that, as transports have to."""
        address = address_of(into)
        registered = self._ready or self._register(address)
        here = self._agent.get_xfer_descs([(address, self._nbytes, 0)], self._segment)
        read_by_nixl(self._agent, here, self._there, self._peer)
        if registered is not self._ready:
            self._agent.deregister_memory(registered)

    def close(self) -> None:
        """Forget the source."""
        self._agent.remove_remote_agent(self._peer)
        if self._ready is not None:
            self._agent.deregister_memory(self._ready)


class RawNixl(Fetching):
    """One read by NIXL."""

    raw_source = NixlSource

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        buffer = None if self._new else self._buffer
        self._reader = NixlReader(self._load, self.ask("introduce"), self.ask("address"), buffer)

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        self._reader.read(array)
        return array

    def close(self) -> None:
        """See `loop.Contender`."""
        self._reader.close()
        super().close()


class GlooSource(RawSource):
    """Sends by torch.distributed, when it is asked to."""

    def join(self, port: int) -> None:
        """Become one of a group, which is built while this returns."""
        threading.Thread(target=self._serve, args=(port,), daemon=True).start()

    def _serve(self, port: int) -> None:
        group, wanted, contents = _gloo(port, SOURCE), torch.zeros(1), torch.from_numpy(self.bytes)
        with suppress(RuntimeError):  # the receiver has ended, or asks no more: whoever waits there is told
            while True:
                group.recv([wanted], RECEIVER, _REQUEST).wait(PATIENCE)
                if not wanted.item():
                    return
                group.send([contents], RECEIVER, _DATA).wait(PATIENCE)


class RawGloo(Fetching):
    """One send and receive by gloo through torch.distributed, which a message asks for."""

    raw_source = GlooSource

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._store = STORE("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.ask("join", self._store.port)
        self._group = _gloo(self._store.port, RECEIVER, self._store)

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        self._group.send([torch.ones(1)], SOURCE, _REQUEST).wait(PATIENCE)
        self._group.recv([torch.from_numpy(array)], SOURCE, _DATA).wait(PATIENCE)
        return array

    def close(self) -> None:
        """See `loop.Contender`."""
        self._group.send([torch.zeros(1)], SOURCE, _REQUEST).wait(PATIENCE)
        super().close()


RAW_LIBRARIES: dict[str, type[Fetching]] = {"raw:NIXL": RawNixl, "raw:GLOO": RawGloo}
"""Those that move memory of the CPU, by the names that ``--rdt-peers`` takes."""


def nixl_agent() -> Any:
    """An agent of NIXL's own, with a name that nobody else has; its thread never rests, as users get it."""
    from nixl._api import nixl_agent, nixl_agent_config

    return nixl_agent(uuid.uuid4().hex, nixl_agent_config(backends=["UCX"]))


def read_by_nixl(agent: Any, here: Any, there: Any, peer: str) -> None:
    """Read described memory of a peer into described memory here, and wait for it.

    Raises:
        ConnectionError: it did not arrive.
    """
    handle = agent.initialize_xfer("READ", here, there, peer)
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    agent.release_xfer_handle(handle)
    if state != "DONE":
        raise ConnectionError("NIXL could not read it")


def _gloo(port: int, rank: int, store: Any = None) -> Any:
    return dist.ProcessGroupGloo(store or STORE("127.0.0.1", port, is_master=False), rank, 2, PATIENCE)
