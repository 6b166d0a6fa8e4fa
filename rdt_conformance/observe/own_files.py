"""Which files in shared folders a process has to do with: others of the same user put some there as well.

Who has made a file the system does not tell. Python does, of what is named to it: from `listen` on, that is noted. Of
what native code makes, only what it holds open or mapped is known; what it makes and forgets is taken for another's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psutil

from rdt_conformance.observe import proc

_MAKING = {"open": 0, "os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1, "socket.bind": 1, "mmap.__new__": 0}
"""The events of Python by which files come about, and which of their arguments is the path, or the descriptor."""
_MOST = 2_000
"""Of names that are kept, unless so many are in use."""
_RAYS = "/session_"
"""In the path of all that Ray keeps of a cluster."""


class _Names:
    """Paths that were named to Python, as long as something is there. Every access is a single step, without a lock.

    A name is noted before the file is made, so that what is missed once may just be about to be; what is missed twice
    is forgotten.
    """

    def __init__(self) -> None:
        self._missed: dict[str, int] = {}
        self._most_now = _MOST
        """With so many, those that are gone are forgotten: not at each new one, if they are all there."""

    def __contains__(self, path: str) -> bool:
        return path in self._missed

    def __len__(self) -> int:
        return len(self._missed)

    def note(self, path: str) -> None:
        """Remember a path."""
        self._missed[path] = 0
        if len(self._missed) > self._most_now:
            self.there()
            self._most_now = max(_MOST, 2 * len(self._missed))

    def paths(self) -> set[str]:
        """All that are remembered."""
        return set(self._missed)

    def there(self) -> list[proc.Thing]:
        """Inode and path of what is there now."""
        found = []
        for path, missed in list(self._missed.items()):
            try:
                found.append(proc.Thing(os.lstat(path).st_ino, path))
                self._missed[path] = 0
            except OSError:
                if missed:
                    self._missed.pop(path, None)
                else:
                    self._missed[path] = 1
        return found


_listening = False
_named = _Names()
"""Files and folders that are right in one of the folders."""
_below = _Names()
"""Files and folders that Python made here in folders of those, and in the working folder or below it."""


def listen() -> None:
    """From now on, note what is named to Python in this process, for as long as that lives."""
    global _listening
    if not _listening:
        _listening = True
        tempfile.gettempdir()  # opens files when it is called first, which must not be from in there
        sys.addaudithook(_note)


def _note(event: str, args: tuple[Any, ...]) -> None:
    number = _MAKING.get(event)
    if number is None:
        return
    with suppress(OSError, TypeError, ValueError):  # nothing that is noted
        named = args[number]
        if event == "mmap.__new__":
            named = os.readlink(f"/proc/self/fd/{named}")
        path = os.path.abspath(os.fsdecode(named))
        for folder in (proc.SHARED_MEMORY, tempfile.gettempdir()):
            if path.startswith(f"{folder}/"):
                _named.note(f"{folder}/{path[len(folder) + 1 :].partition('/')[0]}")
        makes = event != "open" or args[2] & os.O_CREAT  # first: most of what is opened is only read
        if makes and _is_below(path) and not os.path.lexists(path):
            _below.note(path)


def _is_below(path: str) -> bool:
    """Whether a path is in a folder of the shared ones, or in the working folder, and not hidden, Ray's or Python's.

    What begins with a zero is no path, but the name of a socket that is nowhere.
    """
    for folder, least in ((proc.SHARED_MEMORY, 2), (tempfile.gettempdir(), 2), (os.getcwd(), 1)):
        if path.startswith(f"{folder}/"):
            parts = path[len(folder) + 1 :].split("/")
            hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
            return len(parts) >= least and not hidden and _RAYS not in path and "\0" not in path
    return False


def made_below() -> list[proc.Thing]:
    """What Python made here since `listen` in folders of the shared ones, or in the working folder, and is there."""
    return _below.there()


def was_named(path: str) -> bool:
    """Whether a path right in one of the folders, or something in it, was named to Python in this process."""
    return path in _named


def own_files() -> frozenset[str]:
    """What this process and its children have open or mapped, and what was named to Python here since `listen`."""
    found = _named.paths()
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error, OSError):  # it has just ended
            found |= proc.paths_held(process.pid)
            found.update(str(connection.laddr) for connection in process.net_connections("unix"))
    return frozenset(found)


def is_among(path: str, files: Iterable[str]) -> bool:
    """Whether a path is that of one of the files, or of a folder that one of them is in."""
    return any(file == path or file.startswith(f"{path}/") for file in files)
