"""Two instances of the NIXL transport, in one process, and what is registered by them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reference_transports.nixl import NixlTransport, agent as agents
from reference_transports.nixl.agent import Agent, Registration


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """Making an agent takes a while."""
    return NixlTransport(), NixlTransport()


@pytest.fixture
def source(pair: tuple[Any, Any]) -> Iterator[Any]:
    yield pair[0]
    for obj_id in list(pair[0]._shared):
        pair[0].garbage_collect(obj_id, None, [])


@pytest.fixture
def destination(pair: tuple[Any, Any]) -> Any:
    return pair[1]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Registration]]:
    """What is registered of objects and of what comes of them; nothing may be left."""
    objects: list[Registration] = []
    register, close, more_cells = Registration.__init__, Registration.close, Agent._more_cells

    def registering(self: Registration, *args: Any) -> None:
        register(self, *args)
        objects.append(self)

    def closing(self: Registration) -> None:
        objects.remove(self)
        close(self)

    def making_cells(self: Agent) -> Any:  # for good
        cells = more_cells(self)
        first = next(cells)
        objects[:] = [each for each in objects if each.table[0, 0] != first.table[0, 0]]
        return itertools.chain([first], cells)

    monkeypatch.setattr(Registration, "__init__", registering)
    monkeypatch.setattr(Agent, "_more_cells", making_cells)
    monkeypatch.setattr(Registration, "close", closing)
    yield objects


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def held_up(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Reads of data, not those of tokens, end when this is set; at the latest before the pool's threads must end."""
    go, read = threading.Event(), Agent.read

    def reading(self: Agent, peer: Any, local: Any, remote: Any) -> Iterator[bool]:
        while local[0][0, 1] != agents.CELL_BYTES and not go.is_set():
            yield True
        yield from read(self, peer, local, remote)

    monkeypatch.setattr(Agent, "read", reading)
    yield go
    go.set()
