"""What stands in for actor classes, actors, their methods and references to what those return."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rdt_conformance.testing.stand_in import LocalRay

ENABLED = "enable_tensor_transport"
"""The option of an actor class without which, and without methods of a transport, Ray gives its actors no thread to
receive on."""
WITHOUT_EFFECT = {"num_cpus", "num_gpus", "resources", "memory", "accelerator_type"}
"""Options of actors that say where one runs, of which there is only one place here."""


class NotStoodIn(AttributeError):
    """The code under test uses something of Ray that has no stand-in here; the message says what."""


class WouldHang(RuntimeError):
    """On Ray 2.60, which says nothing, the task would wait for tensors that never come; the message says why."""


def refuse(options: Mapping[str, Any], known: set[str], where: str) -> None:
    """Raise NotStoodIn if an option is none of those that are known."""
    if unknown := sorted(set(options) - known):
        raise NotStoodIn(f"option {unknown[0]!r} of {where} is not known to rdt_conformance.testing")


class Result:
    """Stands in for an ObjectRef of an ordinary value."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def __reduce__(self) -> Any:
        raise NotStoodIn("a reference to an ordinary value can only be passed as an argument itself, not within one")


class Method:
    """``actor.method``, of which ``remote`` is called."""

    def __init__(self, actor: Actor, name: str, transport: str | None) -> None:
        self._actor, self._name, self._transport = actor, name, transport

    def options(self, **options: Any) -> Method:
        """Another transport for this call."""
        refuse(options, {"tensor_transport"}, f"{self._name}.options")
        return Method(self._actor, self._name, options.get("tensor_transport", self._transport))

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Submit the call."""
        return self._actor._ray.call(self._actor, self._name, args, kwargs, self._transport)


class Actor:
    """Stands in for an ActorHandle."""

    def __init__(self, ray: LocalRay, cls: type, name: str, receives: bool) -> None:
        self._ray, self._cls, self._name = ray, cls, name
        self._receives = receives

    def __getattr__(self, name: str) -> Method:
        method = getattr(self._cls, name, None)
        if method is None or name.startswith("__"):
            raise AttributeError(f"actors of {self._cls.__name__} have no method {name!r}")
        if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
            raise NotStoodIn(f"{self._cls.__name__}.{name} is an async or generator method, which is not run here")
        if getattr(method, "__ray_num_returns__", 1) != 1:
            raise NotStoodIn(f"{self._cls.__name__}.{name} returns several values, which is not done here")
        return Method(self, name, getattr(method, "__ray_tensor_transport__", None))

    def __reduce__(self) -> Any:
        return _known_actor, (id(self._ray), self._name)

    def __repr__(self) -> str:
        return f"Actor({self._name})"


rays: weakref.WeakValueDictionary[int, LocalRay] = weakref.WeakValueDictionary()
"""By their ids: where an actor that is passed to another is looked up."""


def _known_actor(ray: int, name: str) -> Actor:
    return rays[ray].actors[name]


class ActorClass:
    """Stands in for a class under ``ray.remote``."""

    def __init__(self, ray: LocalRay, cls: type, options: Mapping[str, Any]) -> None:
        refuse(options, WITHOUT_EFFECT | {ENABLED}, cls.__name__)
        self._ray, self._cls, self._options = ray, cls, options

    def options(self, **options: Any) -> ActorClass:
        """The same class with other options."""
        return ActorClass(self._ray, self._cls, {**self._options, **options})

    def remote(self, *args: Any, **kwargs: Any) -> Actor:
        """Start an actor."""
        sends = any(hasattr(method, "__ray_tensor_transport__") for _, method in inspect.getmembers(self._cls))
        return self._ray.start(self._cls, args, kwargs, receives=sends or bool(self._options.get(ENABLED)))
