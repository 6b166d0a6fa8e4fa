"""The stand-in for the module ``ray``; see `rdt_conformance.testing`."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import ray
import ray.actor
import ray.exceptions
import ray.experimental
import torch
from ray.experimental import TensorTransportManager
from ray.experimental.rdt import util

from rdt_conformance import pickling
from rdt_conformance.engines.base import DRIVER, Lane, wait_for
from rdt_conformance.engines.reference import errors
from rdt_conformance.engines.reference.context import current_worker, lane_or_none
from rdt_conformance.engines.reference.refs import Ref
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.history import History
from rdt_conformance.results import Step
from rdt_conformance.testing.handles import ENABLED, Actor, ActorClass, NotStoodIn, Result, WouldHang, rays
from reference_transports.inline import InlineTransport
from reference_transports.tcp import TcpTransport

_STAND_INS: dict[str, type[TensorTransportManager]] = {
    "NIXL": InlineTransport,
    "CUDA_IPC": InlineTransport,
    "NCCL": TcpTransport,
    "GLOO": TcpTransport,
}
"""What carries tensors of the CPU in place of Ray's own transports: one-sided where they are, two-sided likewise."""


class _Experimental:
    """Stands in for ``ray.experimental``."""

    def __init__(self, ray: LocalRay) -> None:
        self.register_tensor_transport = ray._register
        self.set_target_for_ref = ray._set_target
        self.set_target_device_for_ref = ray._set_target_device
        self.wait_tensor_freed = ray._wait_freed

    def __getattr__(self, name: str) -> Any:
        raise NotStoodIn(f"ray.experimental.{name} has no stand-in in rdt_conformance.testing")


class LocalRay:
    """A world of its own: no actor, object or transport of it is known to another. It is ended by `close` or ``with``.

    Args:
        transports: transport classes by name, beside or in place of those known already: stand-ins for Ray's own, and
            whatever this process has registered with Ray.
        seconds: how long anything may take before it is given up, with an error that says what.
    """

    exceptions = ray.exceptions
    method = staticmethod(ray.method)

    def __init__(
        self, transports: Mapping[str, type[TensorTransportManager]] | None = None, seconds: float = 30
    ) -> None:
        util._ensure_default_transports_registered()
        known = {name: Registration(name, ("cpu",), cls, torch.Tensor) for name, cls in _STAND_INS.items()}
        for name, info in util.transport_manager_info.items():
            if name not in util.DEFAULT_TRANSPORTS:
                known[name] = Registration(name, tuple(info.devices), info.transport_manager_class, info.data_type)
        for name, cls in (transports or {}).items():
            known[name.upper()] = Registration(name.upper(), ("cpu",), cls, torch.Tensor)
        self.seconds = seconds
        self.experimental = _Experimental(self)
        self.actors: dict[str, Actor] = {}
        """The actors that were started, by name: class and number, as in ``Trainer1``."""
        self._instances: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._calls = History()
        self._host = ThreadHost(tuple(known.values()), self._calls, Settings(fetch_fail_timeout=seconds))
        self._host.start(DRIVER)
        rays[id(self)] = self

    def __enter__(self) -> LocalRay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        raise NotStoodIn(f"ray.{name} has no stand-in in rdt_conformance.testing")

    # --- what the code under test calls ---------------------------------------------------------------------------

    def remote(self, *args: Any, **options: Any) -> Any:
        """As ``ray.remote``, for classes only; takes those that are under ``ray.remote`` already as well."""
        if not args:
            return partial(self.remote, **options)
        (cls,) = args
        if isinstance(cls, ray.actor.ActorClass):
            given: Any = vars(cls)
            options = {key: value for key, value in given["_default_options"].items() if value} | options
            cls = given["__ray_metadata__"].modified_class.__ray_actor_class__
        if not isinstance(cls, type):
            raise NotStoodIn(f"{getattr(cls, '__name__', cls)!r} is no class, and functions do not run as tasks here")
        return ActorClass(self, cls, options)

    def get(self, refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
        """As ``ray.get``, of one reference or a list of them.

        Raises:
            ray.exceptions.GetTimeoutError: `timeout`, or the time that anything may take, has passed.
            Exception: what the producer raised.
        """
        wanted = refs if isinstance(refs, list) else [refs]
        if strange := [each for each in wanted if not isinstance(each, Ref | Result)]:
            raise TypeError(f"get takes references, and got a {type(strange[0]).__name__}")
        deadline = time.monotonic() + (self.seconds if timeout is None else min(timeout, self.seconds))
        plain = {id(each): self._wait(each.future, deadline, "get") for each in wanted if isinstance(each, Result)}
        moved = [each for each in wanted if isinstance(each, Ref)]
        got = iter(
            self._as_user(_get, moved, max(0.0, deadline - time.monotonic()), _use_object_store) if moved else ()
        )
        values = [plain[id(each)] if isinstance(each, Result) else next(got) for each in wanted]
        return values if isinstance(refs, list) else values[0]

    def put(self, value: Any, *, _tensor_transport: str | None = None) -> Any:
        """As ``ray.put``; the caller is the source of the object."""
        if _tensor_transport is not None:
            return self._as_user(_put, value, _tensor_transport)
        future: Future[Any] = Future()
        future.set_result(self._as_user(_copied, value))
        return Result(future)

    def kill(self, actor: Actor, *, no_restart: bool = True) -> None:
        """As ``ray.kill``: at once, and for good."""
        self._host.kill(actor._name)

    def is_initialized(self) -> bool:
        """True."""
        return True

    # --- what a test asks -----------------------------------------------------------------------------------------

    @contextmanager
    def instead_of_ray_in(self, *modules: ModuleType) -> Iterator[LocalRay]:
        """In the body, have modules use this instead of Ray; afterwards they are as they were.

        Of what they have imported or made, these are replaced: the module ``ray``, every class under ``ray.remote``,
        and each function of ``ray`` and ``ray.experimental`` that this stands in for.
        """
        functions: dict[int, Any] = {id(ray): self, id(ray.experimental): self.experimental}
        functions |= {id(getattr(ray, name)): getattr(self, name) for name in ("get", "put", "kill", "remote")}
        functions |= {id(getattr(ray.experimental, name)): here for name, here in vars(self.experimental).items()}
        before = [(module, name, value) for module in modules for name, value in list(vars(module).items())]
        try:
            for module, name, value in before:
                if isinstance(value, ray.actor.ActorClass):
                    setattr(module, name, self.remote(value))
                elif id(value) in functions:
                    setattr(module, name, functions[id(value)])
            yield self
        finally:
            for module, name, value in before:
                setattr(module, name, value)

    @property
    def history(self) -> tuple[Step, ...]:
        """Every call of a transport so far: when, in which actor, on which of its threads, for which object."""
        return self._calls.steps()

    def calls(self, method: str = "") -> list[tuple[str, str]]:
        """Actor and method of every call of a transport so far, in order; those of one method only, if it is named."""
        found = [(step.process, step.what.partition("(")[0]) for step in self.history]
        return [call for call in found if method in ("", call[1])]

    @property
    def transfers(self) -> int:
        """How many transfers have brought their tensors."""
        return self._calls.transfers

    def held(self) -> dict[str, int]:
        """How many objects with tensors each actor, and the driver, holds for others, once all is quiet.

        Raises:
            TimeoutError: something is still under way.
        """
        gc.collect()  # a reference may be part of a cycle, such as that of an exception and its frames
        if not self._host.wait_idle(self.seconds):
            raise TimeoutError(f"after {self.seconds:g} s something is still under way:\n{self._host.stacks()}")
        found = {name: len(worker.store.objects()) for name, worker in self._host.workers.items()}
        return {name: count for name, count in found.items() if count}

    def close(self) -> None:
        """End all actors."""
        self._host.stop()
        self._instances.clear()
        self.actors.clear()

    # --- how it is done -------------------------------------------------------------------------------------------

    def _worker(self) -> Worker:
        """Whose code is running: an actor's, or the test's."""
        return self._host.driver if lane_or_none() is None else current_worker()

    def _as_user(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function with the worker whose code is running, on its thread."""
        try:
            if lane_or_none() is not None:
                return function(current_worker(), *args)
            done = self._host.submit(DRIVER, Lane.MAIN, function, *args)
            return self._wait(done, time.monotonic() + 2 * self.seconds, function.__name__.strip("_"))
        except (errors.GetTimeoutError, errors.ActorDiedError) as error:
            raise _as_rays(error) from None

    def _wait(self, future: Future[Any], deadline: float, what: str) -> Any:
        if not wait_for(future, max(0.0, deadline - time.monotonic())):
            raise ray.exceptions.GetTimeoutError(f"{what} did not come back in time:\n{self._host.stacks()}")
        error = future.exception()
        if isinstance(error, errors.ActorDiedError):
            raise _as_rays(error) from None
        return future.result()

    def start(self, cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], receives: bool) -> Actor:
        """Start an actor; a constructor that fails is told to whoever calls a method."""
        name = f"{cls.__name__}{next(self._numbers)}"
        self._host.start(name)
        actor = self.actors[name] = Actor(self, cls, name, receives)
        self._submit(actor, partial(_construct, self._instances, name, cls), args, kwargs, None)
        return actor

    def call(
        self, actor: Actor, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], transport: str | None
    ) -> Any:
        """Submit a call of an actor's method; the reference to its result."""
        return self._submit(actor, partial(_run, self._instances, actor._name, method), args, kwargs, transport)

    def _submit(
        self,
        actor: Actor,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        transport: str | None,
    ) -> Any:
        """Have an actor run a function. An ordinary result among the arguments is waited for right here."""
        if by_keyword := [name for name, value in kwargs.items() if isinstance(value, Ref)]:
            raise WouldHang(
                f"argument {by_keyword[0]!r} is a reference to tensors that is passed by keyword, and Ray moves these "
                "by position only"
            )
        if not actor._receives and any(isinstance(argument, Ref) for argument in args):
            raise WouldHang(
                f"{actor._name} cannot receive tensors: its class needs @ray.remote({ENABLED}=True), as none of its "
                "methods has a tensor_transport"
            )
        owner, deadline = self._worker().owner, time.monotonic() + self.seconds

        def value(argument: Any) -> Any:
            return self._wait(argument.future, deadline, "an argument") if isinstance(argument, Result) else argument

        args, kwargs = tuple(map(value, args)), {name: value(argument) for name, argument in kwargs.items()}
        if transport is None:
            return Result(owner.call_task(actor._name, function, args, kwargs))
        self._host.driver.registry.find(transport)  # a name that is not known is the caller's mistake
        return owner.create_by_task(actor._name, function, transport.upper(), args, kwargs)

    def _register(
        self, transport_name: str, devices: list[str], transport_manager_class: Any, data_type: type = torch.Tensor
    ) -> None:
        registration = (transport_name, devices, transport_manager_class, data_type)
        for worker in list(self._host.workers.values()):
            worker.registry.register(*registration)
        self._host.registrations = self._host.driver.registry.registrations()

    def _set_target(self, ref: Any, target: list[Any]) -> None:
        self._worker().owner.set_target_buffers(_with_tensors(ref), target)

    def _set_target_device(self, ref: Any, target_device: str) -> None:
        self._worker().owner.set_target_device(_with_tensors(ref), target_device)

    def _wait_freed(self, tensor: Any, timeout: float | None = None) -> None:
        self._worker().store.wait_freed(tensor, self.seconds if timeout is None else min(timeout, self.seconds))


class _NotBuilt:
    """What an actor is whose constructor raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _construct(instances: dict[str, Any], name: str, cls: type, worker: Worker, *args: Any, **kwargs: Any) -> None:
    try:
        instances[name] = cls(*args, **kwargs)
    except Exception as error:
        instances[name] = _NotBuilt(error)


def _run(instances: dict[str, Any], name: str, method: str, worker: Worker, *args: Any, **kwargs: Any) -> Any:
    instance = instances.get(name)
    if isinstance(instance, _NotBuilt):
        raise errors.ActorDiedError(f"the constructor of {name} raised {instance.error!r}") from instance.error
    return getattr(instance, method)(*args, **kwargs)


def _get(worker: Worker, refs: list[Ref], timeout: float, through_store: bool) -> list[Any]:
    return worker.owner.get(refs, timeout, through_store=through_store)


def _put(worker: Worker, value: Any, transport: str) -> Ref:
    return worker.owner.put(value, transport.upper())


def _copied(worker: Worker, value: Any) -> Any:
    return pickling.loads(pickling.dumps(value))


def _with_tensors(ref: Any) -> Ref:
    if not isinstance(ref, Ref):
        raise ValueError(f"{ref!r} is no reference to an RDT object")
    return ref


def _as_rays(error: Exception) -> Exception:
    """An error of the reference's as the one that Ray raises for it."""
    if isinstance(error, errors.ActorDiedError):
        died = ray.exceptions.ActorDiedError()
        died.error_msg = str(error)
        return died
    return ray.exceptions.GetTimeoutError(str(error))
