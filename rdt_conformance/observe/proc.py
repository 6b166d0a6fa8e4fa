"""Read what Linux tells about this process, fast: plain functions over ``/proc`` and directories."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path
from typing import NamedTuple

import psutil

SHARED_MEMORY = "/dev/shm"
DESCRIPTORS = ("open files", "sockets", "pipes", "memfds", "other descriptors")
"""The kinds of descriptors."""

_MAPPING = re.compile(rb"^([0-9a-f]+)-\S+ \S+ \S+ \S+ (\d+) +(/.*)$", re.MULTILINE)

_ROLLUP = re.compile(rb"^(\w+): +(\d+) kB$", re.MULTILINE)


class Thing(NamedTuple):
    """One thing that the process holds: together its parts name it for as long as it exists."""

    number: int
    """A descriptor, an address, an inode, a thread or process id."""
    text: str
    """A path, or what else the system calls it."""


class Mapping(NamedTuple):
    """A part of a file in the process's memory."""

    address: int
    inode: int
    path: str


def descriptors(process: int | str = "self") -> dict[str, list[Thing]]:
    """The open descriptors by kind; the text is what ``/proc/PID/fd`` links to.

    Raises:
        OSError: the process is gone, or not ours to see.
    """
    found: dict[str, list[Thing]] = {kind: [] for kind in DESCRIPTORS}
    # The listing itself opens a descriptor, which is closed again by the time its link is read.
    for number in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{process}/fd/{number}")
            found[_descriptor_kind(target)].append(Thing(int(number), target))
    return found


def _descriptor_kind(target: str) -> str:
    if target.startswith("socket:"):
        return "sockets"
    if target.startswith("pipe:"):
        return "pipes"
    if target.startswith("/memfd:"):
        return "memfds"
    if not target.startswith("/") or (target.startswith("/dev/") and not target.startswith(SHARED_MEMORY)):
        return "other descriptors"
    return "open files"


def mappings(process: int | str = "self") -> list[Mapping]:
    """The mapped files, one entry per mapping.

    Raises:
        OSError: the process is gone, or not ours to see.
    """
    with open(f"/proc/{process}/maps", "rb") as file:
        lines = _MAPPING.findall(file.read())
    return [Mapping(int(address, 16), int(inode), os.fsdecode(path)) for address, inode, path in lines]


def paths_held(process: int | str = "self") -> set[str]:
    """What a process has open or mapped, by path, or by what else the system calls it.

    Raises:
        OSError: the process is gone, or not ours to see.
    """
    opened = {thing.text for things in descriptors(process).values() for thing in things}
    return opened | {mapping.path for mapping in mappings(process)}


def shared_memory_held(open_files: list[Thing], mapped: list[Mapping]) -> dict[int, str]:
    """Inode and path of the files in ``/dev/shm`` that are open or mapped here, also when their name is gone."""
    found: dict[int, str] = {}
    for number, path in open_files:
        if path.startswith(SHARED_MEMORY):
            with contextlib.suppress(OSError):
                found[os.stat(f"/proc/self/fd/{number}").st_ino] = path
    return found | {mapping.inode: mapping.path for mapping in mapped if mapping.path.startswith(SHARED_MEMORY)}


def entries(directory: str) -> set[Thing]:
    """Inode and path of everything in a directory, not below it."""
    try:
        with os.scandir(directory) as listing:
            return {Thing(entry.inode(), entry.path) for entry in listing}
    except OSError:
        return set()


def is_ours(path: str) -> bool:
    """Tell whether a path exists and belongs to the user of this process."""
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def memory() -> tuple[int, int]:
    """Bytes that are resident, and that would be free if this process ended.

    Of the latter, without what lies in files as well, such as code: the kernel drops that, and brings it back, as it
    likes.
    """
    with contextlib.suppress(OSError):
        rollup = Path("/proc/self/smaps_rollup").read_bytes()
        told = {name: int(kib) << 10 for name, kib in _ROLLUP.findall(rollup)}
        if b"Private_Dirty" in told:
            own = told[b"Private_Dirty"] + told.get(b"Private_Hugetlb", 0) + told.get(b"Swap", 0)
            return told[b"Rss"], own
    full = psutil.Process().memory_full_info()
    return full.rss, full.uss


def threads() -> list[Thing]:
    """The native threads."""
    return [Thing(int(thread), "") for thread in os.listdir("/proc/self/task")]


def thread_seconds() -> dict[int, tuple[float, float]]:
    """For how many seconds each native thread has run so far, and has waited for a processor.

    Empty if the kernel does not tell.
    """
    found = {}
    for thread, _ in threads():
        with contextlib.suppress(OSError):  # it has just ended
            ran, waited, _ = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
            found[thread] = int(ran) / 1e9, int(waited) / 1e9
    return found


def children() -> list[Thing]:
    """The direct child processes, also those that ended and were not waited for."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # a kernel built without it
        return [Thing(child.pid, "") for child in psutil.Process().children()]
    found: list[Thing] = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
            found += [Thing(int(pid), "") for pid in file.read().split()]
    return found


def name_of(pid_or_thread: int) -> str:
    """The short name that the system shows for a process or thread, empty if it is gone."""
    try:
        with open(f"/proc/{pid_or_thread}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def python_names() -> dict[int, str]:
    """The names that the threads of this process have in Python, by their numbers."""
    return {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id}
