"""Finds what ``--transport=TARGET`` names: a class or a profile, in a module, a file, Ray or an installed package."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import rdt_conformance
from rdt_conformance import author

SHORT_NAMES = "rdt_conformance.transports"
"""The entry-point group in which a package gives its transports short names."""

_OURS = f"rdt-conformance {rdt_conformance.__version__}"

FORMS = "give module:Class, path/to/file.py:Class, module:PROFILE, ray:NAME or a short name"


class TargetProblem(Exception):
    """The target cannot be run at all, and why, for its author to read. What runs badly is for the clauses to say."""


def locate(spec: str) -> object:
    """The object that `spec` names; whether it is any good as a transport is not looked at.

    The current folder comes first on the import path, as with ``python -m pytest``, or the file's folder if a file is
    named.

    Raises:
        TargetProblem: there is no such thing, or its module cannot be imported.
    """
    place, colon, name = spec.rpartition(":")
    if not colon:
        return _by_short_name(spec)
    if not place or not name.isidentifier():
        raise TargetProblem(f"{spec!r} names no transport; {FORMS}")
    if place == "ray":
        return _ray_transport(name)
    if place.endswith(".py"):
        return _attribute(_import_file(Path(place)), name)
    if not all(part.isidentifier() for part in place.split(".")):
        hint = f"did you mean {place}.py:{name}?" if Path(f"{place}.py").is_file() else FORMS
        raise TargetProblem(f"{spec!r}: {place!r} is neither a module nor a .py file; {hint}")
    return _attribute(_import_module(place), name)


def short_names() -> dict[str, list[EntryPoint]]:
    """Every short name with the entry points that give it: one, unless packages quarrel about it."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=SHORT_NAMES), key=lambda entry: (giver(entry) != _OURS, entry.name)):
        others = found.setdefault(entry.name, [])
        if entry not in others:  # a package that is found twice on the path gives it twice
            others.append(entry)
    return found


def giver(entry: EntryPoint) -> str:
    """The package that an entry point is of: ``my-package 1.2``."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown package"


def _by_short_name(spec: str) -> object:
    found = short_names()
    if spec in found:
        return _load(spec, found[spec])
    if spec.endswith(".py") or Path(f"{spec}.py").is_file():
        hint = f"name the class too: {spec}:Class"
    elif near := difflib.get_close_matches(spec, found, n=1):
        hint = f"did you mean {near[0]}?"
    else:
        hint = FORMS
    raise TargetProblem(f"{spec!r} is none of the short names ({', '.join(sorted(found)) or 'there are none'}); {hint}")


def _load(name: str, entries: list[EntryPoint]) -> object:
    if len(entries) > 1:
        given = " and ".join(f"{giver(entry)} ({entry.value})" for entry in entries)
        raise TargetProblem(f"{name!r} is given by {given}; name the class instead: module:Class")
    (entry,) = entries
    if not entry.attr:
        raise TargetProblem(f"{name!r}: the entry point of {giver(entry)} names no class, but {entry.value!r}")
    return _attribute(_import_module(entry.module), entry.attr)


def names_of_ray() -> list[str]:
    """The transports that Ray itself registers."""
    from ray.experimental.rdt import util

    util._ensure_default_transports_registered()
    return [name for name in util.DEFAULT_TRANSPORTS if name in util.transport_manager_info]


def _ray_transport(name: str) -> object:
    from ray.experimental.rdt import util

    util._ensure_default_transports_registered()
    if name not in util.transport_manager_info:
        ships = ", ".join(f"ray:{known}" for known in util.DEFAULT_TRANSPORTS)
        raise TargetProblem(f"'ray:{name}': Ray ships no transport of that name; it ships {ships}")
    return util.transport_manager_info[name].transport_manager_class


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetProblem(f"{path} is a folder, not a file" if path.exists() else f"there is no file {path}")
    root, name = module_of(path.resolve())
    module = _import(name, str(root))
    if not (module.__file__ and path.samefile(module.__file__)):
        where = module.__file__ or "Python itself"
        raise TargetProblem(f"{path}: the module name {name!r} is taken by {where}; rename the file")
    return module


def module_of(path: Path) -> tuple[Path, str]:
    """The folder to import from and the module's full name, so that imports within its package work."""
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, parts = folder.parent, [folder.name, *parts]
    return folder, ".".join(parts)


def _import_module(name: str) -> ModuleType:
    try:
        return _import(name, os.getcwd())
    except ModuleNotFoundError as error:
        near = difflib.get_close_matches(name, [path.stem for path in Path().glob("*.py")], n=1)
        hint = f"did you mean {near[0]}?" if near else "it is neither in the current folder nor installed"
        raise TargetProblem(f"there is no module {error.name!r}; {hint}") from None


def _import(name: str, folder: str) -> ModuleType:
    """Import `name`, with `folder` first on the path.

    Raises:
        ModuleNotFoundError: there is no such module; one that it imports itself is the author's error instead.
        TargetProblem: it cannot be imported.
    """
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise
        from rdt_conformance.engines.reference.errors import is_for_lack_of_ray

        if is_for_lack_of_ray(error):
            raise TargetProblem(
                f"cannot import {name}: it uses Ray when it is imported; put that under `if __name__ == '__main__':`"
            ) from None
        raise problem(f"cannot import {name}", error) from None


def problem(what: str, error: BaseException) -> TargetProblem:
    """`error` came out of the author's code: one line that says so, and the author's frames under it."""
    frames = error.frames if isinstance(error, author.StillRunning) else author.frames(error)
    said = str(error) if isinstance(error, author.StillRunning) else author.describe(error)
    return TargetProblem(f"{what}: {said}" + (f"\n{frames}" if frames else ""))


def _attribute(module: ModuleType, name: str) -> object:
    try:
        return getattr(module, name)
    except AttributeError:
        raise TargetProblem(f"{module.__name__} has no {name!r}; {_there_is(module, name)}") from None


def _there_is(module: ModuleType, name: str) -> str:
    """What the author may have meant: a name that comes near, else the transports that the module has."""
    from ray.experimental import TensorTransportManager

    if near := difflib.get_close_matches(name, vars(module), n=1):
        return f"did you mean {near[0]}?"
    transports = [
        known
        for known, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, TensorTransportManager) and value is not TensorTransportManager
    ]
    return f"the transports there: {', '.join(transports)}" if transports else "no transport is there"
