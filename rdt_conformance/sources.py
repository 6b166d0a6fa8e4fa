"""The addresses of what clauses name as their sources."""

from __future__ import annotations

import re

_RAY = "https://github.com/ray-project/ray"
_RAY_DOCS = "https://docs.ray.io/en/master/ray-core"
_PAGES = {
    "custom-tensor-transport.md": f"{_RAY_DOCS}/direct-transport/custom-tensor-transport.html",
    "direct-transport.md": f"{_RAY_DOCS}/direct-transport.html",
}
_FOLDERS = {"actor.py": "", "serialization.py": "_private/", "worker.py": "_private/"}
"""Where in Ray's package a file lies that is not among those of RDT."""
_ISSUES = {"ray": f"{_RAY}/issues", "nixl": "https://github.com/ai-dynamo/nixl/issues"}


def sources(written: str) -> list[tuple[str, str]]:
    """Each place where a clause is written or relied upon: in words, and its address, empty if there is none.

    Args:
        written: as in `Clause.source`, or in a report, which may be of another version.
    """
    return [(text, _address(text)) for text in written.split("; ")]


def _address(source: str) -> str:
    if page := re.fullmatch(r"doc ([a-z-]+\.md)(#[\w-]+)?", source):
        return _PAGES[page[1]] + (page[2] or "") if page[1] in _PAGES else ""
    if re.fullmatch(r"doc [\w.]+", source):
        return _file("tensor_transport_manager.py")
    if file := re.match(r"src (\w+\.py)\b", source):
        return _file(file[1])
    issue = re.fullmatch(r"(\w+)#([0-9]+)", source)
    return f"{_ISSUES[issue[1]]}/{issue[2]}" if issue and issue[1] in _ISSUES else ""


def _file(name: str) -> str:
    return f"{_RAY}/blob/ray-2.60.0/python/ray/{_FOLDERS.get(name, 'experimental/rdt/')}{name}"
