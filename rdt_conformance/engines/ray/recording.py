"""Makes a transport's calls visible: a subclass that tells the history of every call that Ray makes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import TensorTransportManager

from rdt_conformance.engines.base import Lane, Origin, mark_origin
from rdt_conformance.engines.reference.context import lane_or_none
from rdt_conformance.engines.reference.worker import describe_call, describe_result
from rdt_conformance.engines.untyped import the_rdt_manager
from rdt_conformance.history import Recorder

RECORDED = (
    "actor_has_tensor_transport",
    "extract_tensor_transport_metadata",
    "get_communicator_metadata",
    "recv_multiple_tensors",
    "fetch_multiple_tensors",
    "wait_fetch_complete",
    "send_multiple_tensors",
    "garbage_collect",
    "abort_transport",
)
_NAMES_OBJECT = (
    "extract_tensor_transport_metadata",
    "recv_multiple_tensors",
    "fetch_multiple_tensors",
    "garbage_collect",
    "abort_transport",
)
"""The calls whose first argument is the object's id."""


@dataclass
class Place:
    """Where calls are recorded in this process."""

    process: str
    history: Recorder
    lanes: Mapping[int, Lane] = field(default_factory=dict)
    """Which thread, by its ident, is which lane. Any other is one of Ray's own."""


_place: Place | None = None
_inside = threading.local()


def record_in(place: Place) -> None:
    """Record calls of this process there from now on."""
    global _place
    _place = place


@contextmanager
def about(obj_id: str) -> Iterator[None]:
    """Say which object a call is about that the body makes, as far as that is known."""
    _inside.obj_id = obj_id
    try:
        yield
    finally:
        _inside.obj_id = ""


def recorded(base: type[TensorTransportManager]) -> type[TensorTransportManager]:
    """A subclass of a transport that behaves as it does, and is seen at it."""
    methods = {name: _telling(name, base) for name in RECORDED}
    namespace = {"__module__": __name__, "__doc__": base.__doc__, "__rdt_recorded__": base}
    return type(f"Recorded{base.__name__}", (base,), namespace | methods)


def _telling(name: str, base: type) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return tell(name, getattr(base, name), self, args, kwargs)

    method.__name__ = name
    return method


def tell(name: str, function: Callable[..., Any], self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call and tell the history, unless the transport itself made it in the course of another."""
    place = _place
    if place is None or getattr(_inside, "call", False):
        return function(self, *args, **kwargs)
    lane = (lane_or_none() or place.lanes.get(threading.get_ident(), Lane.IO)).value
    obj_id = getattr(_inside, "obj_id", "") or _object(name, args)
    _inside.call = True
    try:
        with place.history.record(place.process, lane, describe_call(name, args, kwargs), obj_id) as event:
            try:
                result = function(self, *args, **kwargs)
            except Exception as error:
                mark_origin(error, Origin(name, place.process, lane))
                raise
            event.outcome = describe_result(result)
            return result
    finally:
        _inside.call = False


def _object(name: str, args: tuple[Any, ...]) -> str:
    """The id of the object that a call is about, as far as its arguments say or, for a send, Ray's store does."""
    if name == "send_multiple_tensors":
        return _stored_as(args[0]) if args else ""
    if name == "wait_fetch_complete":
        return str(getattr(args[0], "obj_id", "")) if args else ""
    return str(args[0]) if args and name in _NAMES_OBJECT else ""


def _stored_as(tensors: Any) -> str:
    """The object whose tensors are in this very list."""
    store = the_rdt_manager().rdt_store
    with store._lock:
        return next((obj_id for obj_id, copies in store._rdt_store.items() if copies and copies[0].data is tensors), "")
