"""Count what a transport keeps in its containers, without asking it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import itertools
import os
import queue
import sys
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_DEPTH = 8
"""How many steps from the transport a container may be."""
_LOOKED_INTO = 1_000
"""How many elements of one container are followed; all are counted."""
_MOST = 100_000
"""How many objects one walk visits."""

_HOLDERS: dict[type, str] = {
    queue.Queue: "queue",
    asyncio.Queue: "_queue",
    collections.UserDict: "data",
    collections.UserList: "data",
    collections.ChainMap: "maps",
    weakref.WeakValueDictionary: "data",
    weakref.WeakKeyDictionary: "data",
    weakref.WeakSet: "data",
}
"""Containers of the standard library written in Python, and the attribute that holds their elements."""

_ARRAYS = frozenset({"torch", "numpy", "jax", "jaxlib", "cupy", "pyarrow", "pandas", "tensorflow"})
_RUNNERS = frozenset({"ray", "rdt_conformance", "pytest", "_pytest", "pluggy", "hypothesis"})
_NEVER_FOLLOWED = sys.stdlib_module_names | _ARRAYS | _RUNNERS


def registrations(transport: object) -> dict[str, int]:
    """Count the elements of every container that a transport can reach.

    Looked at are the instance's attributes (``self._objects``), class attributes of its classes
    (``MyTransport._cache``) and globals of the modules that define them (``mymodule.REGISTRY``), and from there every
    object of a class that is neither the standard library's, nor Ray's, nor an array library's; helper classes from
    the transport's package or folder are looked at like its own. Elements are written ``[]``:
    ``self._objects[].views`` counts the views of all objects together. Weakly held elements count,
    ``functools.lru_cache`` counts, tuples are looked through, and so are functions, methods and partials: what they
    close over or are bound to, and the defaults of their parameters (``mymodule.describe.known``). No property, method
    or ``__len__`` of the transport's own is called.

    Args:
        transport: the instance.

    Returns:
        Number of elements by path. Every container is counted once, under its shortest path. Paths of empty
        containers are left out.
    """
    return registrations_of([transport])


def registrations_of(transports: Iterable[object]) -> dict[str, int]:
    """Like `registrations`, added up over several instances; what they share counts once."""
    walk = _Walk()
    for transport in transports:
        walk.homes |= {_home(cls) for cls in type(transport).__mro__ if _may_be_followed(cls)}
        walk.add("self", transport, 0)
    walk.run()
    return dict(walk.counts)


class _Place(NamedTuple):
    path: str
    value: Any
    depth: int


@dataclass(frozen=True)
class _Container:
    """How to count and read the elements of a builtin container, whatever a subclass overrides."""

    count: Callable[[Any], int]
    elements: Callable[[Any], Iterable[Any]]


_CONTAINERS: dict[type, _Container] = {
    dict: _Container(dict.__len__, dict.values),
    list: _Container(list.__len__, list.__iter__),
    set: _Container(set.__len__, set.__iter__),
    frozenset: _Container(frozenset.__len__, frozenset.__iter__),
    deque: _Container(deque.__len__, deque.__iter__),
    tuple: _Container(lambda _: 0, tuple.__iter__),
    queue.SimpleQueue: _Container(queue.SimpleQueue.qsize, lambda _: ()),
    types.MappingProxyType: _Container(len, types.MappingProxyType.values),
    functools._lru_cache_wrapper: _Container(lambda function: function.cache_info().currsize, lambda _: ()),
}


class _Walk:
    """One breadth-first walk, so that a container is named by its shortest path."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.homes: set[str] = set()
        # The objects themselves are kept, not just their ids: an id is free again once its object is gone.
        self._seen: dict[int, object] = {}
        self._queue: deque[_Place] = deque()
        self._visitors: dict[type, Callable[[_Place], None] | None] = {}
        self._visited_kinds: set[type] = set()
        self._slots: dict[type, dict[str, types.MemberDescriptorType]] = {}

    def add(self, path: str, value: object, depth: int) -> None:
        """Plan to visit a value, unless it holds nothing or was planned before."""
        if self._visitor(type(value)) is None or depth > _DEPTH or id(value) in self._seen:
            return
        if len(self._seen) < _MOST:
            self._seen[id(value)] = value
            self._queue.append(_Place(path, value, depth))

    def run(self) -> None:
        """Visit everything planned, and what is found on the way."""
        while self._queue:
            place = self._queue.popleft()
            visit = self._visitor(type(place.value))
            if visit is not None:
                visit(place)

    def _visitor(self, kind: type) -> Callable[[_Place], None] | None:
        if kind not in self._visitors:
            self._visitors[kind] = self._choose_visitor(kind)
        return self._visitors[kind]

    def _choose_visitor(self, kind: type) -> Callable[[_Place], None] | None:
        own = _may_be_followed(kind) and not any(_root(base) in _ARRAYS for base in kind.__mro__)
        for base, container in _CONTAINERS.items():
            if issubclass(kind, base):
                return functools.partial(self._visit_container, container, own)
        for base, attribute in _HOLDERS.items():
            if issubclass(kind, base):
                return functools.partial(self._visit_holder, attribute, own)
        if issubclass(kind, types.FunctionType):
            return self._visit_function
        if issubclass(kind, types.MethodType | functools.partial | staticmethod | classmethod):
            return self._visit_bound
        return self._visit_object if own else None

    def _visit_container(self, container: _Container, own: bool, place: _Place) -> None:
        count = container.count(place.value)
        if count:
            self.counts[place.path] += count
        path = f"{place.path}[]"
        for element in _first_elements(container.elements, place.value):
            self.add(path, element, place.depth + 1)
        if own:
            self._visit_object(place)

    def _visit_holder(self, attribute: str, own: bool, place: _Place) -> None:
        self.add(place.path, self._attributes(place.value).get(attribute), place.depth)
        if own:
            self._visit_object(place)

    def _visit_function(self, place: _Place) -> None:
        function: types.FunctionType = place.value
        if not is_somebodys(function):
            return
        code = function.__code__
        parameters = code.co_varnames[: code.co_argcount]
        held = dict(zip(reversed(parameters), reversed(function.__defaults__ or ()), strict=False))
        held |= function.__kwdefaults__ or {}
        held |= function.__dict__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # nothing is in it yet
                held[name] = cell.cell_contents
        for name, value in held.items():
            self.add(f"{place.path}.{name}", value, place.depth + 1)

    def _visit_bound(self, place: _Place) -> None:
        bound = place.value
        if isinstance(bound, functools.partial):
            parts: tuple[object, ...] = (bound.func, *bound.args, *bound.keywords.values())
        else:
            parts = (bound.__func__, getattr(bound, "__self__", None))
        for part in parts:
            self.add(place.path, part, place.depth + 1)

    def _visit_object(self, place: _Place) -> None:
        for name, value in self._attributes(place.value).items():
            self.add(f"{place.path}.{name}", value, place.depth + 1)
        kind = type(place.value)
        if kind not in self._visited_kinds:
            self._visited_kinds.add(kind)
            for cls in kind.__mro__:
                if _may_be_followed(cls) and _home(cls) in self.homes:
                    self._visit_class(cls, place.depth + 1)
                    self._visit_module(sys.modules.get(cls.__module__), place.depth + 1)

    def _attributes(self, value: object) -> dict[str, Any]:
        """An object's own attributes, from its slots and its dictionary, without calling a property."""
        kind = type(value)
        if kind not in self._slots:
            self._slots[kind] = _slots(kind)
        found: dict[str, Any] = {}
        for name, slot in self._slots[kind].items():
            with contextlib.suppress(AttributeError):  # the slot is empty
                found[name] = slot.__get__(value)
        with contextlib.suppress(AttributeError, TypeError):  # there is no dictionary
            found.update(object.__getattribute__(value, "__dict__"))
        return found

    def _visit_class(self, cls: type, depth: int) -> None:
        if id(cls) not in self._seen:
            self._seen[id(cls)] = cls
            self._add_all(cls.__name__, dict(vars(cls)), depth)

    def _visit_module(self, module: types.ModuleType | None, depth: int) -> None:
        if module is None or id(module) in self._seen:
            return
        self._seen[id(module)] = module
        names = dict(vars(module))
        self._add_all(module.__name__, names, depth)
        for value in names.values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                self._visit_class(value, depth)

    def _add_all(self, owner: str, names: dict[str, object], depth: int) -> None:
        for name, value in names.items():
            if not (name.startswith("_") and name.endswith("_")):
                self.add(f"{owner}.{name}", value, depth)


def _may_be_followed(cls: type) -> bool:
    """Tell whether a class itself, whatever it inherits, is somebody's own."""
    # Ray's own transports live here, and custom ones subclass its requests and metadata.
    if cls.__module__.startswith("ray.experimental.rdt."):
        return True
    return _root(cls) not in _NEVER_FOLLOWED and not issubclass(cls, (type, types.ModuleType))


def is_somebodys(thing: object) -> bool:
    """Tell whether a function, or an object of a class, is somebody's own."""
    if isinstance(thing, types.MethodType):
        return is_somebodys(thing.__self__)
    if isinstance(thing, functools.partial):
        return is_somebodys(thing.func)
    if isinstance(thing, types.FunctionType):
        return str(thing.__module__).partition(".")[0] not in _NEVER_FOLLOWED
    return _may_be_followed(thing if isinstance(thing, type) else type(thing))


def _home(cls: type) -> str:
    """Where a class comes from: the folder for a module at top level, else the package's name."""
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None) if "." not in cls.__module__ else None
    return os.path.dirname(path) if path else _root(cls)


def _root(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _slots(cls: type) -> dict[str, types.MemberDescriptorType]:
    """The slots of a class and its bases."""
    return {
        name: member
        for base in cls.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    }


def _first_elements(elements: Callable[[Any], Iterable[Any]], container: Any) -> Sequence[Any]:
    """The first elements of a container that other threads may be changing."""
    for _ in range(5):
        try:
            return list(itertools.islice(elements(container), _LOOKED_INTO))
        except RuntimeError:  # changed size during iteration
            continue
    return ()
