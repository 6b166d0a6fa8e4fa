"""What this process holds at one moment, and a watch that tells what is new."""

from __future__ import annotations

import gc
import os
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from rdt_conformance import allocator
from rdt_conformance.observe import devices, own_files, proc
from rdt_conformance.observe.containers import is_somebodys, registrations_of
from rdt_conformance.observe.proc import Thing
from rdt_conformance.observe.standing import standing

MEMORY = "uss bytes"
GPU_TENSORS = "gpu tensor bytes"
GPU_MEMORY = "gpu bytes"
MEMORIES = (MEMORY, GPU_TENSORS, GPU_MEMORY)
"""Kinds that come in bytes, not in pieces."""
REGISTRATIONS = "registrations"
SHARED_MEMORY_FILES = "shared memory files"
TEMPORARY_FILES = "temporary files"

_MOST_NAMES = 64
_DIRECTORIES = {SHARED_MEMORY_FILES: lambda: proc.SHARED_MEMORY, TEMPORARY_FILES: tempfile.gettempdir}


@dataclass(frozen=True)
class Resources:
    """What one process held at one moment; picklable.

    A kind that the system does not tell is absent, which is not the same as zero.
    """

    counts: dict[str, int]
    """By kind: ``open files``, ``sockets``, ``pipes``, ``memfds``, ``other descriptors``, ``mapped files`` (mappings),
    ``threads`` (native), ``child processes`` (direct), ``shared memory files`` (in ``/dev/shm``; open or mapped here,
    or new and made here, see `own_files`), ``temporary files`` (new and made here; also those in the working folder),
    ``registrations``, ``rss bytes``
    and ``uss bytes`` (what would be free if the process ended, see `proc.memory`), and where GPUs are used
    ``gpu tensor bytes`` (of torch's allocator)."""
    names: dict[str, tuple[str, ...]]
    """By kind, the latest of what was not there when the watch began."""
    registrations: dict[str, int] = field(default_factory=dict)
    """Elements by container, see `rdt_conformance.observe.registrations` and `rdt_conformance.observe.standing`."""
    gpus: dict[str, int] = field(default_factory=dict)
    """Bytes in use on each GPU, by all processes of the machine, see `rdt_conformance.observe.devices`."""

    def memories(self) -> dict[str, int]:
        """Memory that is told, by kind: ``uss bytes``, ``gpu tensor bytes``, and ``gpu bytes`` of all GPUs together."""
        told = {kind: self.counts[kind] for kind in (MEMORY, GPU_TENSORS) if kind in self.counts}
        return told | ({GPU_MEMORY: sum(self.gpus.values())} if self.gpus else {})

    def countable(self) -> dict[str, int]:
        """Everything that comes in pieces: all kinds but memory, with one kind for every container."""
        pieces = {kind: n for kind, n in self.counts.items() if kind != REGISTRATIONS and not kind.endswith(" bytes")}
        return pieces | {f"{REGISTRATIONS} in {path}": n for path, n in self.registrations.items()}


class Watch:
    """Begins watching this process when made, and knows what was there before.

    Args:
        transports: instances whose containers are counted, see `rdt_conformance.observe.registrations`.
        memory: also measure memory, which takes some milliseconds.
    """

    def __init__(self, transports: Sequence[object] = (), memory: bool = True) -> None:
        self._transports = tuple(transports)
        self._memory = memory
        self._process = psutil.Process()
        own_files.listen()
        if memory:
            allocator.give_back_freed()  # a leak would fill that up first, and not be seen meanwhile
        self._entries_before = {kind: proc.entries(directory()) for kind, directory in _DIRECTORIES.items()}
        self._before = {kind: frozenset(things) for kind, things in self._look().items()}
        self.threads_before: weakref.WeakSet[threading.Thread] = weakref.WeakSet(threading.enumerate())

    def snapshot(self, addresses: bool = False) -> Resources:
        """Count now.

        Args:
            addresses: name sockets by their addresses, which is slow where there are hundreds.
        """
        things = self._look()
        counts = {kind: len(found) for kind, found in things.items()}
        containers = registrations_of(self._transports)
        if self._transports:
            counts[REGISTRATIONS] = sum(containers.values())
            containers |= standing(is_somebodys)
        if self._memory:
            counts["rss bytes"], counts[MEMORY] = proc.memory()
            if devices.used_torch() is not None:
                counts[GPU_TENSORS] = devices.tensor_bytes()
        new = {kind: [thing for thing in found if thing not in self._before[kind]] for kind, found in things.items()}
        names = {kind: self._names(kind, found[-_MOST_NAMES:], addresses) for kind, found in new.items() if found}
        return Resources(counts, names, containers, devices.driver_bytes() if self._memory else {})

    def settled(self) -> Resources:
        """Collect garbage, then count once nothing is going away any more.

        What is on its way out (a thread that ends, a socket that closes) may leave between two counts; as long as
        something does, for a second at most, it is counted again.
        """
        gc.collect()
        if self._memory:
            devices.give_back_cached()
        latest = self.snapshot(addresses=True)
        give_up = time.monotonic() + 1.0
        while time.monotonic() < give_up:
            time.sleep(0.002)  # no event tells that the kernel is done with a thread or descriptor
            earlier, latest = latest, self.snapshot(addresses=True)
            if not fewer(earlier, latest):
                break
        return latest

    def appeared(self, kind: str) -> list[Thing]:
        """What this user has put into a shared directory since the watch began, oldest inode first, by any process.

        Args:
            kind: ``shared memory files`` or ``temporary files``.
        """
        new = proc.entries(_DIRECTORIES[kind]()) - self._entries_before[kind]
        return sorted(thing for thing in new if proc.is_ours(thing.text))

    def _made_here(self, kind: str) -> list[Thing]:
        return [thing for thing in self.appeared(kind) if own_files.was_named(thing.text)]

    def _look(self) -> dict[str, list[Thing]]:
        made = {kind: self._made_here(kind) for kind in _DIRECTORIES}
        for thing in own_files.made_below():
            in_memory = thing.text.startswith(f"{proc.SHARED_MEMORY}/")
            made[SHARED_MEMORY_FILES if in_memory else TEMPORARY_FILES].append(thing)
        things = {TEMPORARY_FILES: made[TEMPORARY_FILES]}
        if not os.path.isdir("/proc/self/task"):
            return things | self._look_elsewhere()
        things |= proc.descriptors()
        # CUDA's driver keeps such a file mapped for each process that it has met, until this one ends.
        mapped = [mapping for mapping in proc.mappings() if not mapping.path.startswith(devices.DRIVERS_FILES)]
        things["mapped files"] = [Thing(mapping.address, mapping.path) for mapping in mapped]
        segments = proc.shared_memory_held(things["open files"], mapped) | dict(made[SHARED_MEMORY_FILES])
        things[SHARED_MEMORY_FILES] = [Thing(inode, path) for inode, path in segments.items()]
        things["threads"] = proc.threads()
        things["child processes"] = proc.children()
        return things

    def _look_elsewhere(self) -> dict[str, list[Thing]]:
        """What psutil can tell on systems other than Linux."""
        return {
            "open files": [Thing(file.fd, file.path) for file in self._process.open_files()],
            "threads": [Thing(thread.id, "") for thread in self._process.threads()],
            "child processes": [Thing(child.pid, "") for child in self._process.children()],
        }

    def _names(self, kind: str, things: list[Thing], addresses: bool) -> tuple[str, ...]:
        """What to call things in a message."""
        better: dict[int, str] = {}
        if kind == "threads":
            better = proc.python_names()
        elif kind == "sockets" and addresses:
            better = {connection.fd: _words(connection) for connection in self._process.net_connections("all")}
        return tuple(better.get(number) or text or f"{number} {proc.name_of(number)}" for number, text in things)


def fewer(earlier: Resources, later: Resources) -> bool:
    """Tell whether anything countable became less."""
    after = later.countable()
    return any(after.get(kind, 0) < count for kind, count in earlier.countable().items())


def _words(connection: Any) -> str:
    """A socket as a person would name it; empty for one without an address."""
    ends = (connection.laddr, connection.raddr)
    words = " -> ".join(f"{end.ip}:{end.port}" if hasattr(end, "ip") else end for end in ends if end)
    family = "unix" if connection.family == socket.AF_UNIX else connection.type.name.removeprefix("SOCK_").lower()
    state = "" if connection.status == psutil.CONN_NONE else f" ({connection.status.lower()})"
    return f"{family} {words}{state}" if words else ""
