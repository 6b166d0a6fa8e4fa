"""What changed from one version of Ray to the next, as far as transports notice: the one place that knows.

Read in the published wheels of Ray: ``ray/experimental/rdt/`` (in 2.54 ``gpu_object_manager/``), there
``tensor_transport_manager.py``, ``rdt_manager.py`` and ``rdt_store.py``. Patch releases do as their minor version.
``docs/ray-versions.md`` tells the same in words.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import sys
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
    gets: int
    """How many a fetch has, or where there is none the receive for a ``ray.get``."""
    collects: int
    """How many garbage_collect has: with the tensors or without."""
    fetches: bool
    """Whether ``ray.get`` fetches and waits; else it receives."""
    target_devices: bool
    """Whether a ``ray.get`` can be told on which device the tensors are to arrive."""
    driver_puts: bool
    """Whether the driver can put objects, of which get_communicator_metadata then hears as those without a source."""
    source: str
    """Where it began."""

    @property
    def keeps_early_word(self) -> bool:
        """Whether Ray keeps word of an object that its owner has yet to register: that came with target devices."""
        return self.target_devices

    @property
    def frees_in_spite(self) -> bool:
        """Whether Ray lets go of an object for which garbage_collect raised: that came with puts of the driver."""
        return self.driver_puts


INTERFACES = (
    Interface(("2.54",), 3, 3, 2, fetches=False, target_devices=False, driver_puts=False, source="ray#59255"),
    Interface(("2.55",), 4, 4, 3, fetches=False, target_devices=False, driver_puts=False, source="ray#61094"),
    Interface(("2.56", "2.57"), 4, 4, 3, fetches=True, target_devices=False, driver_puts=False, source="ray#61773"),
    Interface(("2.58",), 3, 4, 3, fetches=True, target_devices=True, driver_puts=False, source="ray#64815"),
    Interface(("2.59", "2.60"), 3, 4, 3, fetches=True, target_devices=True, driver_puts=True, source="ray#65072"),
)
"""The oldest first. A newer Ray than the last is taken to make the calls of the last."""
OLDEST = "2.57"
"""The oldest version that the suite itself works on."""

_DESCRIBED = ("obj_id", "tensor_transport_metadata", "communicator_metadata", "target_buffers")


@functools.cache
def installed_version() -> str:
    """The minor version of the Ray that is installed: ``2.60``."""
    return ".".join(importlib.metadata.version("ray").split(".")[:2])


@functools.cache
def installed_interface() -> Interface:
    """That of the Ray that is installed."""
    minor = installed_version()
    return next((interface for interface in INTERFACES if minor in interface.versions), INTERFACES[-1])


def survives_puts_of_nothing() -> bool:
    """Whether a process outlives the end of a reference to an object without tensors that it put.

    Ray does not register such an object, and its callback for the end of references does not find it. With Python 3.12
    that error ends the process: see ``docs/findings/ray-2.60-core.md``.
    """
    return sys.version_info < (3, 12)


def no_buffers() -> tuple[None, ...]:
    """What the installed Ray has in the place of target buffers in a receive without any: None, or no argument."""
    return (None,) * (installed_interface().receives - 3)


def calls(interface: Interface, capabilities: Capabilities) -> Iterator[Call]:
    """The calls that Ray makes of a transport that claims this."""
    yield Call("can_abort_transport")
    yield Call("actor_has_tensor_transport", ("actor",))
    yield Call("extract_tensor_transport_metadata", ("obj_id", "rdt_object"))
    yield Call("get_communicator_metadata", ("src_actor", "dst_actor", "backend"))
    yield Call("recv_multiple_tensors", _DESCRIBED[: interface.receives])
    yield Call("garbage_collect", ("obj_id", "tensor_transport_meta", "tensors")[: interface.collects])
    if not capabilities.one_sided:
        yield Call("send_multiple_tensors", ("tensors", *_DESCRIBED[1:3]))
    elif capabilities.own_fetch and interface.fetches:
        yield Call("fetch_multiple_tensors", _DESCRIBED[: interface.gets])
        yield Call("wait_fetch_complete", ("request",), ("timeout",))
    else:
        yield Call("recv_multiple_tensors", _DESCRIBED[: interface.gets])
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
    """Of versions in order, which may have gaps: ``2.54, 2.58 to 2.60``."""
    every = [version for interface in INTERFACES for version in interface.versions]
    runs: list[list[str]] = []
    for version in versions:
        if runs and every.index(version) == every.index(runs[-1][-1]) + 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
