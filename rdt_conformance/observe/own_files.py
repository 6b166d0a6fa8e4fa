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
_listening = False
_most_now = _MOST
"""With so many, those that are gone are forgotten: not at each new one, if they are all there."""
_named: set[str] = set()
"""Files and folders that are right in one of the folders. Every access is a single step, without a lock."""
_below: dict[str, int] = {}
"""Files and folders that Python made here in folders of those, and in the working folder or below it; and how often
each was not there when it was looked for. Likewise."""
_RAYS = "/session_"
"""In the path of all that Ray keeps of a cluster."""


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
                _named.add(f"{folder}/{path[len(folder) + 1 :].partition('/')[0]}")
                if len(_named) > _most_now:
                    _forget_the_gone()
        makes = event != "open" or args[2] & os.O_CREAT  # first: most of what is opened is only read
        if makes and _is_below(path) and not os.path.lexists(path):
            _below[path] = 0


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
    """Inode and path of what Python made here since `listen` in folders of the shared ones, or in the working folder.

    Of what is gone, nothing is remembered after it was missed twice: once it may just be about to be made.
    """
    found = []
    for path, missed in list(_below.items()):
        try:
            found.append(proc.Thing(os.lstat(path).st_ino, path))
            _below[path] = 0
        except OSError:
            if missed:
                _below.pop(path, None)
            else:
                _below[path] = 1
    return found


def _forget_the_gone() -> None:
    global _most_now
    for path in _named.copy():
        if not os.path.lexists(path):
            _named.discard(path)
    _most_now = max(_MOST, 2 * len(_named))


def was_named(path: str) -> bool:
    """Whether a path right in one of the folders, or something in it, was named to Python in this process."""
    return path in _named


def own_files() -> frozenset[str]:
    """What this process and its children have open or mapped, and what was named to Python here since `listen`."""
    found = set(_named)
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error, OSError):  # it has just ended
            found |= proc.paths_held(process.pid)
            found.update(str(connection.laddr) for connection in process.net_connections("unix"))
    return frozenset(found)


def is_among(path: str, files: Iterable[str]) -> bool:
    """Whether a path is that of one of the files, or of a folder that one of them is in."""
    return any(file == path or file.startswith(f"{path}/") for file in files)
