"""What transports are made of, by itself: a library moves as many bytes in one piece, told by the shortest program.

All that can be prepared is prepared beforehand, as by `ceilings.Ceiling`. They are peers, named with ``--rdt-peers``.
"""

from __future__ import annotations

import importlib.util
import threading
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rdt_conformance.bench.ceilings import Fetching, RawSource
from rdt_conformance.bench.contents import Bytes, Load
from rdt_conformance.bench.process import PATIENCE_SECONDS, Remote

_store = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]
_PATIENCE = timedelta(seconds=PATIENCE_SECONDS)
_RECEIVER, _SOURCE = 0, 1
_REQUEST, _DATA = 0, 1
"""Tags."""


class NixlSource(RawSource):
    """Memory that others may read by NIXL."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._agent = nixl_agent()
        self._registered = self._agent.register_memory(_described(self.bytes), "DRAM")

    def introduce(self) -> bytes:
        """What the reader's agent has to know."""
        return self._agent.get_agent_metadata()


class RawNixl(Fetching):
    """One read by NIXL. New memory is registered within the clock, as transports have to."""

    raw_source = NixlSource

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._agent = nixl_agent()
        self._peer = self._agent.add_remote_agent(self.ask("introduce"))
        self._there = self._agent.get_xfer_descs([(self.ask("address"), self._load.nbytes, 0)], "DRAM")
        self._ready = None if self._new else self._agent.register_memory(_described(self._buffer), "DRAM")

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        registered = self._ready or self._agent.register_memory(_described(array), "DRAM")
        here = self._agent.get_xfer_descs([piece[:3] for piece in _described(array)], "DRAM")
        read_by_nixl(self._agent, here, self._there, self._peer)
        if registered is not self._ready:
            self._agent.deregister_memory(registered)
        return array

    def close(self) -> None:
        """See `loop.Contender`."""
        self._agent.remove_remote_agent(self._peer)
        if self._ready is not None:
            self._agent.deregister_memory(self._ready)
        super().close()


class GlooSource(RawSource):
    """Sends by torch.distributed, when it is asked to."""

    def join(self, port: int) -> None:
        """Become one of a group, which is built while this returns."""
        threading.Thread(target=self._serve, args=(port,), daemon=True).start()

    def _serve(self, port: int) -> None:
        group, wanted, contents = _gloo(port, _SOURCE), torch.zeros(1), torch.from_numpy(self.bytes)
        with suppress(RuntimeError):  # the receiver has ended, or asks no more: whoever waits there is told
            while True:
                group.recv([wanted], _RECEIVER, _REQUEST).wait(_PATIENCE)
                if not wanted.item():
                    return
                group.send([contents], _RECEIVER, _DATA).wait(_PATIENCE)


class RawGloo(Fetching):
    """One send and receive by gloo through torch.distributed, which a message asks for."""

    raw_source = GlooSource

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._store = _store("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.ask("join", self._store.port)
        self._group = _gloo(self._store.port, _RECEIVER, self._store)

    def fill(self, array: Bytes, turn: int) -> Bytes:
        """See `Ceiling.fill`."""
        self._group.send([torch.ones(1)], _SOURCE, _REQUEST).wait(_PATIENCE)
        self._group.recv([torch.from_numpy(array)], _SOURCE, _DATA).wait(_PATIENCE)
        return array

    def close(self) -> None:
        """See `loop.Contender`."""
        self._group.send([torch.zeros(1)], _SOURCE, _REQUEST).wait(_PATIENCE)
        super().close()


RAW_LIBRARIES: dict[str, type[Fetching]] = {"raw:NIXL": RawNixl, "raw:GLOO": RawGloo}
"""By the names that ``--rdt-peers`` takes."""


def why_not_raw(name: str) -> str:
    """Why such a peer cannot be measured here; empty if it can."""
    if name == "raw:NIXL" and importlib.util.find_spec("nixl") is None:
        return "it needs the package nixl, which is not installed"
    return ""


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


def _described(array: Bytes) -> list[tuple[int, int, int, str]]:
    return [(array.__array_interface__["data"][0], len(array), 0, "")]


def _gloo(port: int, rank: int, store: Any = None) -> Any:
    return dist.ProcessGroupGloo(store or _store("127.0.0.1", port, is_master=False), rank, 2, _PATIENCE)
