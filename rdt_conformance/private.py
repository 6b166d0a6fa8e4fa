"""Takes out of a report where this machine keeps things and what it is called: reports are shared."""

from __future__ import annotations

import os
import re
import socket
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

_PROJECT = Path(__file__).resolve().parent.parent
_SHORTEST_NAME = 4
"""A machine's name that is shorter is in other words too, and tells nobody anything."""


def without_places(value: Any) -> Any:
    """JSON-ready data with every path told from where it is known to everybody.

    What lies in the current folder, in this project or among installed packages is told from there, the home folder is
    ``~``, and this machine is ``this-host``.
    """
    match value:
        case str():
            for pattern, instead in _places(os.getcwd()):
                value = pattern.sub(instead, value)
            return value
        case list() | tuple():
            return [without_places(item) for item in value]
        case dict():
            return {without_places(key): without_places(item) for key, item in value.items()}
        case _:
            return value


@cache
def _places(current: str) -> list[tuple[re.Pattern[str], str]]:
    """What is replaced by what, the longest first."""
    installed, home, name = sysconfig.get_paths(), str(Path.home()), socket.gethostname()
    told_from = [*(installed[kind] for kind in ("stdlib", "purelib", "platlib")), str(_PROJECT), current]
    folders = {sys.base_prefix: "python", sys.prefix: "python", **dict.fromkeys(told_from, "")}
    # A folder like /usr is the same everywhere.
    places = {folder: instead for folder, instead in folders.items() if folder.count("/") > 1}
    if home != "/":
        places.setdefault(home, "~")
    if len(name) >= _SHORTEST_NAME and name != "localhost":
        places[name] = "this-host"
    return [(_pattern(place, places[place]), places[place]) for place in sorted(places, key=len, reverse=True)]


def _pattern(place: str, instead: str) -> re.Pattern[str]:
    """A place, unless it is a part of another word or path; with the slash after it if nothing comes instead."""
    return re.compile(rf"(?<![\w./~-]){re.escape(place)}" + (r"(?![\w-])" if instead else "/"))
