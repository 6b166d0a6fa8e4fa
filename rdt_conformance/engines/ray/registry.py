"""Transports as Ray knows them."""

from __future__ import annotations

from typing import Any

from ray.experimental import TensorTransportManager
from ray.experimental.rdt import util

from rdt_conformance.engines.cluster.registry import ProcessRegistry
from rdt_conformance.engines.ray.recording import recorded

_util: Any = util


class RayRegistry(ProcessRegistry):
    """The one instance that Ray has of a transport in this process, whose calls are recorded."""

    def shown_class(self) -> type[TensorTransportManager]:
        """The class that Ray is to build."""
        return recorded(self._registration.transport_class)

    def register_with_ray(self) -> None:
        """Register the transport with Ray, in the driver, before there are actors. Ray tells the actors."""
        if self.is_known_to_ray():
            self.show_to_ray()
            return
        devices, data_type = list(self._registration.devices), self._registration.data_type
        _util.register_tensor_transport(self._registration.name, devices, self.shown_class(), data_type)

    def show_what_is_known(self) -> None:
        """Record the calls of a transport that Ray need not tell this process of."""
        if self.is_known_to_ray():
            self.show_to_ray()

    def register(
        self, name: str, devices: list[str], transport_class: type[TensorTransportManager], data_type: type
    ) -> None:
        """Make another transport known to Ray in this process, and to actors that start after that."""
        _util.register_tensor_transport(name, devices, transport_class, data_type)

    def forget(self, name: str) -> None:
        """Let Ray forget a transport in this process that nothing was sent with."""
        _util.transport_manager_info.pop(name.upper(), None)
