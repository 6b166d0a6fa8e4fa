"""The addresses of what clauses name as their sources."""

from __future__ import annotations

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
    kind, _, where = source.partition(" ")
    if kind == "doc":
        page, _, anchor = where.partition("#")
        if page in _PAGES:
            return _PAGES[page] + (f"#{anchor}" if anchor else "")
        return _file("tensor_transport_manager.py")
    if kind == "src":
        return _file(where.partition(" ")[0])
    repository, _, number = source.partition("#")
    return f"{_ISSUES[repository]}/{number}" if repository in _ISSUES and number.isdecimal() else ""


def _file(name: str) -> str:
    return f"{_RAY}/blob/ray-2.60.0/python/ray/{_FOLDERS.get(name, 'experimental/rdt/')}{name}"
