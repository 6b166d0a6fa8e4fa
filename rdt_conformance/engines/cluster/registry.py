"""The transport under test in a process of its own, where Ray's own lookup finds it as well."""

from __future__ import annotations

from typing import Any

from ray.experimental import TensorTransportManager
from ray.experimental.rdt import util

from rdt_conformance.engines.reference.registry import Registration, Registry

_util: Any = util


class ProcessRegistry(Registry):
    """The one instance of a transport in this process, which the transport's own code can ask Ray for by its name.

    It does in a task that it sends to an actor, to see whether the transport works over there.
    """

    def __init__(self, registration: Registration) -> None:
        super().__init__((registration,), lasting=True)
        self._registration = registration
        self._before: Any = None

    def shown_class(self) -> type[TensorTransportManager]:
        """The class that Ray is to build."""
        return self._registration.transport_class

    def is_known_to_ray(self) -> bool:
        """Whether Ray, or the module of the class when it was imported, has registered the transport here."""
        _util._ensure_default_transports_registered()
        return self._registration.name in _util.transport_manager_info

    def show_to_ray(self) -> None:
        """Let Ray find the transport in this process."""
        _util._ensure_default_transports_registered()
        name, cls = self._registration.name, self.shown_class()
        self._before = _util.transport_manager_info.get(name)
        _util.transport_manager_info[name] = (
            _util.TransportManagerInfo(cls, list(self._registration.devices), self._registration.data_type)
            if self._before is None
            else self._before._replace(transport_manager_class=cls)
        )

    def hide_from_ray(self) -> None:
        """Let Ray forget the transport in this process, or have it as it was before."""
        name = self._registration.name
        with _util.transport_managers_lock:
            _util.transport_managers.pop(name, None)
            _util.transport_manager_info.pop(name, None)
            if self._before is not None:
                _util.transport_manager_info[name] = self._before

    def instance(self, name: str) -> TensorTransportManager:
        """Ray's, built on first use."""
        return _util.get_tensor_transport_manager(self.find(name).name)

    def built(self, name: str) -> TensorTransportManager | None:
        """Ray's if there is one."""
        with _util.transport_managers_lock:
            return _util.transport_managers.get(name.upper())

    def instances(self) -> list[TensorTransportManager]:
        """Ray's if there is one."""
        built = self.built(self._registration.name)
        return [] if built is None else [built]
