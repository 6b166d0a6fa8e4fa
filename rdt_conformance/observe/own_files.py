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
