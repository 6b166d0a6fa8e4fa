"""Which transports a process knows. Source of the rules: `ray.experimental.register_tensor_transport`."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ray.experimental import TensorTransportManager


@dataclass(frozen=True)
class Registration:
    """What `Registry.register` was told."""

    name: str
    devices: tuple[str, ...]
    transport_class: type[TensorTransportManager]
    data_type: type


class Registry:
    """The transports of one process and the single instance of each.

    A transport is built on first use, without arguments, once per process: an owner that only coordinates builds it
    too, which is why building should do no work (S9).

    Args:
        registrations: what is known from the beginning.
        lasting: the instances live as long as the process, as Ray's do, whatever worlds come and go.
    """

    def __init__(self, registrations: tuple[Registration, ...] = (), *, lasting: bool = False) -> None:
        self._lasting = lasting
        self._registrations = {registration.name: registration for registration in registrations}
        self._instances: dict[str, TensorTransportManager] = {}
        self._lock = threading.Lock()

    def register(
        self, name: str, devices: list[str], transport_class: type[TensorTransportManager], data_type: type
    ) -> None:
        """Make a transport known. Names are compared in upper case.

        Raises:
            ValueError: the name is taken, or `transport_class` is no TensorTransportManager.
        """
        name = name.upper()
        with self._lock:
            if name in self._registrations:
                raise ValueError(f"transport {name} is already registered")
            if not issubclass(transport_class, TensorTransportManager):
                raise ValueError(f"{transport_class.__name__} is no subclass of TensorTransportManager")
            self._registrations[name] = Registration(name, tuple(devices), transport_class, data_type)

    def forget(self, name: str) -> None:
        """Let a transport that nothing was sent with be unknown again."""
        with self._lock:
            self._registrations.pop(name.upper(), None)

    def registrations(self) -> tuple[Registration, ...]:
        """Everything registered here: what a new or restarted actor is given."""
        with self._lock:
            return tuple(self._registrations.values())

    def find(self, name: str) -> Registration:
        """The registration of a transport.

        Raises:
            ValueError: no such transport.
        """
        with self._lock:
            registration = self._registrations.get(name.upper())
        if registration is None:
            raise ValueError(f"unknown tensor transport: {name}")
        return registration

    def instance(self, name: str) -> TensorTransportManager:
        """This process's one instance of a transport, built on first use.

        Raises:
            ValueError: no such transport.
        """
        registration = self.find(name)
        with self._lock:
            if registration.name not in self._instances:
                self._instances[registration.name] = registration.transport_class()
            return self._instances[registration.name]

    def built(self, name: str) -> TensorTransportManager | None:
        """The instance if there already is one; never builds."""
        with self._lock:
            return self._instances.get(name.upper())

    def instances(self) -> list[TensorTransportManager]:
        """Every instance built so far."""
        with self._lock:
            return list(self._instances.values())

    def clear(self, *, for_good: bool = False) -> None:
        """Let go of the instances, unless they are lasting. Ray never does; a world that ends has to.

        Args:
            for_good: let go of lasting ones as well, since the engine ends that they belong to. A transport may have
                threads that never rest, which everything after it would have to share the cores with.
        """
        if self._lasting and not for_good:
            return
        with self._lock:
            instances, self._instances = self._instances, {}
        del instances  # finalizers run here, outside of the lock
