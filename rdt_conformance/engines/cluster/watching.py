"""Counts what all processes of a world hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rdt_conformance.engines.base import DRIVER
from rdt_conformance.observe import Resources, Watch
from rdt_conformance.observe.resources import SHARED_MEMORY_FILES

if TYPE_CHECKING:
    from rdt_conformance.engines.cluster.processes import ProcessHost

_HELD_TOGETHER = (SHARED_MEMORY_FILES,)
"""Kinds of which several processes hold the same things: what the process has that has most of them counts."""


class SpreadWatch:
    """A `Watch` in every process, whose counts are added up; see `rdt_conformance.observe.Observer`."""

    def __init__(self, host: ProcessHost, transports: Sequence[object], *, memory: bool) -> None:
        self._host = host
        self._here = Watch(transports, memory=memory)
        host.look("begin_watch", memory)

    def settled(self) -> Resources:
        """Collect garbage everywhere and count what stays."""
        return added([self._here.settled(), *(self._host.look("settled") or [])])


class EachWatch:
    """A `Watch` in every process, also in those that come later, whose counts stay apart."""

    def __init__(self, host: ProcessHost, transports: Sequence[object]) -> None:
        self._host = host
        self._here = Watch(transports)
        self._watching: set[str] = set()

    def forget(self, name: str) -> None:
        """A process was killed; another one may have its name now."""
        self._watching.discard(name)

    def settled(self) -> dict[str, Resources]:
        """Collect garbage everywhere and count what stays, by process. One that died meanwhile is missing.

        A process that is new is watched from now on.
        """
        names = self._host.actors()
        for name in names:
            if name not in self._watching:
                self._host.look_at(name, "begin_watch", True)
                self._watching.add(name)
        counted = {name: self._host.look_at(name, "settled") for name in names}
        return {DRIVER: self._here.settled()} | {name: held for name, held in counted.items() if held is not None}


def added(parts: Sequence[Resources]) -> Resources:
    """What several processes hold together."""
    counts: dict[str, int] = {}
    names: dict[str, tuple[str, ...]] = {}
    registrations: dict[str, int] = {}
    gpus: dict[str, int] = {}
    for part in parts:
        for kind, count in part.counts.items():
            counts[kind] = max(counts.get(kind, 0), count) if kind in _HELD_TOGETHER else counts.get(kind, 0) + count
        for kind, new in part.names.items():
            names[kind] = tuple(dict.fromkeys((*names.get(kind, ()), *new)))
        for path, count in part.registrations.items():
            registrations[path] = registrations.get(path, 0) + count
        for gpu, used in part.gpus.items():
            gpus[gpu] = max(gpus.get(gpu, 0), used)
    return Resources(counts, names, registrations, gpus)
