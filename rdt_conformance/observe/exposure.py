"""What a process holds that others could get at: where it listens, and who may open its files and shared memory."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from rdt_conformance.exposures import GROUP, LISTENING, MACHINE, NETWORK, USER
from rdt_conformance.observe import proc

_MOST_FILES = 1_000
"""Of a folder: what others have put there may have no end."""


class Exposed(NamedTuple):
    """One thing, and whom it is open to."""

    kind: str
    """``listening socket``, ``unix socket``, ``shared memory`` or ``file``."""
    what: str
    """An address or a path."""
    permissions: str
    """In octal; empty for what has none."""
    reach: str
    """`NETWORK`, `MACHINE`, `GROUP` or `USER`. A loopback address is open to every user of the machine."""


def exposure() -> set[Exposed]:
    """What this process holds now: sockets that it listens on, and files and shared memory, open or mapped.

    What cannot be seen from outside is left out, such as a file that has no name any more; so are the programs and
    libraries that it runs, which are mapped and not written to.
    """
    files = {thing.text for thing in proc.descriptors()["open files"]}
    mapped = {mapping.path for mapping in proc.mappings() if mapping.path.startswith(proc.SHARED_MEMORY)}
    return {*_sockets(), *of_files(files | mapped)}


def of_files(paths: Iterable[str]) -> set[Exposed]:
    """Whom files and shared memory are open to for reading; those that are gone or not ours are left out.

    Of a folder, what is in it: that others may list it tells them names only.
    """
    found = set()
    for path in paths:
        for file in _in(path):
            with contextlib.suppress(OSError):
                status = os.lstat(file)
                if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
                    kind = "shared memory" if file.startswith(proc.SHARED_MEMORY) else "file"
                    found.add(_of_path(kind, file, status.st_mode, stat.S_IROTH, stat.S_IRGRP))
    return found


def _in(path: str) -> list[str]:
    """The path itself, or of a folder the files in it and below, up to `_MOST_FILES`."""
    if os.path.islink(path) or not os.path.isdir(path):
        return [path]
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return list(itertools.islice(files, _MOST_FILES))


def _sockets() -> set[Exposed]:
    found = set()
    for connection in psutil.Process().net_connections("all"):
        if connection.family == socket.AF_UNIX:
            with contextlib.suppress(OSError):
                found |= _unix_socket(str(connection.laddr))
        elif connection.status == psutil.CONN_LISTEN or (connection.type == socket.SOCK_DGRAM and not connection.raddr):
            ip, port = connection.laddr[:2]
            reach = MACHINE if ipaddress.ip_address(ip).is_loopback else NETWORK
            found.add(Exposed(LISTENING, f"{ip} port {port}", "", reach))
    return found


def _unix_socket(name: str) -> set[Exposed]:
    """Nothing for one without a name, which is an end of a connection."""
    if name.startswith(("@", "\0")):  # these have no permissions
        # Whoever gives the kernel the longest address has zeros behind the name, which show as more of these.
        return {Exposed("unix socket", f"@{name[1:].rstrip('@' + chr(0))}", "", MACHINE)}
    if not name:
        return set()
    return {_of_path("unix socket", name, os.lstat(name).st_mode, stat.S_IWOTH, stat.S_IWGRP)}


def _of_path(kind: str, path: str, mode: int, others: int, group: int) -> Exposed:
    """By its own permissions, unless a folder above is closed."""
    folders = [os.stat(folder).st_mode for folder in Path(path).parents]
    if mode & others and all(folder & stat.S_IXOTH for folder in folders):
        reach = MACHINE
    elif mode & group and all(folder & (stat.S_IXGRP | stat.S_IXOTH) for folder in folders):
        reach = GROUP
    else:
        reach = USER
    return Exposed(kind, path, f"{stat.S_IMODE(mode):04o}", reach)
