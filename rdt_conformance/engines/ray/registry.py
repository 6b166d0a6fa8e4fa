"""Transports as Ray knows them."""

from __future__ import annotations

from typing import Any

from ray.experimental import TensorTransportManager
from ray.experimental.rdt import util

from rdt_conformance.engines.ray.recording import recorded
from rdt_conformance.engines.reference.registry import Registration, Registry

_util: Any = util


class RayRegistry(Registry):
    """The one instance that Ray has of a transport in this process."""

    def __init__(self, registration: Registration) -> None:
        super().__init__((registration,), lasting=True)
        self._registration = registration

    def register_with_ray(self) -> None:
        """Register the transport with Ray, in the driver, before there are actors. Ray tells the actors."""
        _util._ensure_default_transports_registered()
        name, cls = self._registration.name, self._registration.transport_class
        if name in _util.DEFAULT_TRANSPORTS:
            self.show_builtin()
            return
        devices, data_type = list(self._registration.devices), self._registration.data_type
        _util.register_tensor_transport(name, devices, recorded(cls), data_type)

    def register(
        self, name: str, devices: list[str], transport_class: type[TensorTransportManager], data_type: type
    ) -> None:
        """Make another transport known to Ray in this process, and to actors that start after that."""
        _util.register_tensor_transport(name, devices, transport_class, data_type)

    def forget(self, name: str) -> None:
        """Let Ray forget a transport in this process that nothing was sent with."""
        _util.transport_manager_info.pop(name.upper(), None)

    def show_builtin(self) -> None:
        """Record the calls of a transport that Ray registers by itself in every process."""
        _util._ensure_default_transports_registered()
        name = self._registration.name
        if name in _util.DEFAULT_TRANSPORTS:
            known = _util.transport_manager_info[name]
            seen = recorded(self._registration.transport_class)
            _util.transport_manager_info[name] = known._replace(transport_manager_class=seen)

    def unregister(self) -> None:
        """Let Ray forget the transport in this process."""
        name = self._registration.name
        with _util.transport_managers_lock:
            _util.transport_managers.pop(name, None)
            known = _util.transport_manager_info.pop(name, None)
            if known is not None and name in _util.DEFAULT_TRANSPORTS:
                original = known._replace(transport_manager_class=self._registration.transport_class)
                _util.transport_manager_info[name] = original

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
