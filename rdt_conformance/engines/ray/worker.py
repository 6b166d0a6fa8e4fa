"""A process whose transport Ray uses as well."""

from __future__ import annotations

from typing import Any

from rdt_conformance.engines.ray.recording import about
from rdt_conformance.engines.reference.host import Host
from rdt_conformance.engines.reference.registry import Registry
from rdt_conformance.engines.reference.worker import Settings, Worker
from rdt_conformance.engines.untyped import the_rdt_manager
from rdt_conformance.history import Recorder


class RayWorker(Worker):
    """Like `Worker`, with Ray's store and manager in place of its own. The transport tells its calls itself."""

    def __init__(self, name: str, host: Host, registry: Registry, history: Recorder, settings: Settings) -> None:
        super().__init__(name, host, registry, history, settings)
        # Ray makes its manager at the first use and without a lock: two threads that come together would each have
        # one, and an object that is in the one which is forgotten is never freed (docs/findings/ray-2.60-core.md).
        the_rdt_manager()

    def call(self, transport: str, method: str, *args: Any, obj_id: str = "", **kwargs: Any) -> Any:
        """Call one method of this process's transport."""
        with about(obj_id):
            return getattr(self.registry.instance(transport), method)(*args, **kwargs)

    def kept_of(self, obj_id: str) -> list[str]:
        """What there is of an object in this process: its metadata, its tensors."""
        manager = the_rdt_manager()
        known = {"metadata": manager.is_managed_object(obj_id), "tensors": manager.rdt_store.has_object(obj_id)}
        return [what for what, is_there in known.items() if is_there]
