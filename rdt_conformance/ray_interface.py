"""The calls that each version of Ray makes of a transport, and which versions a class's methods take.

Read in the published wheels of Ray: ``ray/experimental/rdt/`` ``tensor_transport_manager.py``, ``rdt_manager.py`` and
``rdt_store.py``. Patch releases make the calls of their minor version.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple

from rdt_conformance.capabilities import Capabilities


class Call(NamedTuple):
    """A call that Ray makes: method, positional arguments, keyword arguments."""

    method: str
    arguments: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = [*self.arguments, *(f"{keyword}=…" for keyword in self.keywords)]
        return f"{self.method}({', '.join(given)})"


@dataclass(frozen=True)
class Interface:
    """What does not change over several versions of Ray."""

    versions: tuple[str, ...]
    receives: int
    """How many arguments a receive for a task's argument has: with target buffers, which then are None, or without."""
    fetches: bool
    """Whether ``ray.get`` fetches and waits; else it receives."""
    source: str
    """Where it began."""


INTERFACES = (
    Interface(("2.55",), 4, False, "ray#61094"),
    Interface(("2.56", "2.57"), 4, True, "ray#61773"),
    Interface(("2.58", "2.59", "2.60"), 3, True, "ray#64815"),
)
"""The oldest first. A newer Ray than the last is taken to make the calls of the last."""

_DESCRIBED = ("obj_id", "tensor_transport_metadata", "communicator_metadata", "target_buffers")


def installed_interface() -> Interface:
    """That of the Ray that is installed."""
    minor = ".".join(importlib.metadata.version("ray").split(".")[:2])
    return next((interface for interface in INTERFACES if minor in interface.versions), INTERFACES[-1])


def calls(interface: Interface, capabilities: Capabilities) -> Iterator[Call]:
    """The calls that Ray makes of a transport that claims this."""
    yield Call("can_abort_transport")
    yield Call("actor_has_tensor_transport", ("actor",))
    yield Call("extract_tensor_transport_metadata", ("obj_id", "rdt_object"))
    yield Call("get_communicator_metadata", ("src_actor", "dst_actor", "backend"))
    yield Call("recv_multiple_tensors", _DESCRIBED[: interface.receives])
    yield Call("garbage_collect", ("obj_id", "tensor_transport_meta", "tensors"))
    if not capabilities.one_sided:
        yield Call("send_multiple_tensors", ("tensors", *_DESCRIBED[1:3]))
    elif capabilities.own_fetch and interface.fetches:
        yield Call("fetch_multiple_tensors", _DESCRIBED)
        yield Call("wait_fetch_complete", ("request",), ("timeout",))
    else:
        yield Call("recv_multiple_tensors", _DESCRIBED)
    if capabilities.can_abort:
        yield Call("abort_transport", ("obj_id", "communicator_metadata"))


def refusal(function: Any, call: Call) -> str:
    """Why a call would fail before the method's first line, completing the sentence "method …"; empty if it is fine."""
    try:
        # A wrapper's own parameters decide, not those of what it wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # extension types need not have one
        return ""
    try:
        signature.bind(*call.arguments, **dict.fromkeys(call.keywords))
    except TypeError as error:
        return f"{signature} does not take that: {error}"
    return ""


def fitting_versions(transport: type, capabilities: Capabilities) -> str:
    """The versions of Ray whose calls a class's methods take, and why others do not: ``2.56 to 2.60; not 2.55, …``."""
    fits: list[str] = []
    refused: dict[str, list[str]] = {}
    for interface in INTERFACES:
        why = _why_not(transport, capabilities, interface)
        (refused.setdefault(why, []) if why else fits).extend(interface.versions)
    unfit = [f"not {_range(versions)}, {why}" for why, versions in refused.items()]
    return "; ".join([_range(fits) if fits else "none", *unfit])


def _why_not(transport: type, capabilities: Capabilities, interface: Interface) -> str:
    if capabilities.own_fetch and not interface.fetches:
        return "which has no FetchRequest for its fetch_multiple_tensors to return"
    for call in calls(interface, capabilities):
        if refusal(_bound(transport, call.method), call):
            return f"which calls {call}"
    return ""


def _bound(transport: type, name: str) -> Any:
    """A method as an instance has it, without one; whatever is no function cannot be told without running it."""
    found = inspect.getattr_static(transport, name)
    if isinstance(found, (staticmethod, classmethod)):
        return getattr(transport, name)
    return MethodType(found, transport) if inspect.isfunction(found) else None


def _range(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
