"""Two versions of one module in one process: what a file holds, imported under a name that nobody else uses.

A module that is there already under its own name would be found instead of the file. So everything in the file's
package is imported as a package of another name, and what it imports from itself by its own name is too.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from rdt_conformance.locate import module_of, problem
from rdt_conformance.target import resolve

_SUFFIX = "__held_against"


def transport_of(spec: str) -> Any:
    """The transport's class that a target names; if it names a file, as that is and not as it may be imported already.

    Raises:
        TargetProblem: there is no such thing, or it cannot be imported.
    """
    place, _, name = spec.rpartition(":")
    if not place.endswith(".py") or not Path(place).is_file():
        return resolve(spec).transport_class
    try:
        found = getattr(other_version(Path(place)), name)
    except Exception as error:
        raise problem(f"{spec} cannot be imported", error) from None
    return getattr(found, "transport", found)  # of a profile


def other_version(path: Path) -> ModuleType:
    """The module in a file, whatever module of that name there is already. The same one at every call."""
    root, name = module_of(path.resolve())
    top = name.partition(".")[0]
    finder = _Finder(top, str(root))
    if not any(isinstance(known, _Finder) and known.top == finder.top for known in sys.meta_path):
        sys.meta_path.insert(0, finder)
    return importlib.import_module(finder.alias(name))


class _Finder:
    """Finds modules of a package under its other name."""

    def __init__(self, top: str, root: str) -> None:
        self.top = top
        self._root = root

    def alias(self, name: str) -> str:
        """What a module is called here."""
        first, dot, rest = name.partition(".")
        return f"{first}{_SUFFIX}{dot}{rest}"

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname.partition(".")[0] != self.alias(self.top):
            return None
        found = PathFinder.find_spec(fullname.replace(_SUFFIX, ""), list(path) if path else [self._root])
        if found is None or found.origin is None or not found.origin.endswith(".py"):
            return None
        loader = _Loader(fullname, found.origin, self)
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=loader, submodule_search_locations=found.submodule_search_locations
        )


class _Loader(SourceFileLoader):
    """Loads a module, and turns its absolute imports from its own package."""

    def __init__(self, fullname: str, path: str, finder: _Finder) -> None:
        super().__init__(fullname, path)
        self._finder = finder

    def get_code(self, fullname: str) -> Any:
        """Never from a cache, which would hold the other version's imports."""
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        """See `importlib.abc.InspectLoader`."""
        tree = _Turn(self._finder).visit(ast.parse(data, path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True, optimize=_optimize)


class _Turn(ast.NodeTransformer):
    def __init__(self, finder: _Finder) -> None:
        self._finder = finder

    def _own(self, name: str) -> bool:
        return name.partition(".")[0] == self._finder.top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.level == 0 and node.module and self._own(node.module):
            node.module = self._finder.alias(node.module)
        return node

    def visit_Import(self, node: ast.Import) -> Any:
        """``import a.b`` also binds ``a``."""
        own = [alias for alias in node.names if self._own(alias.name)]
        for alias in own:
            bound, alias.name = alias.asname, self._finder.alias(alias.name)
            if bound is None and "." not in alias.name:
                alias.asname = self._finder.top
        binds = any(alias.asname is None for alias in own)
        if not binds:
            return node
        return [node, *ast.parse(f"{self._finder.top} = {self._finder.alias(self._finder.top)}").body]
