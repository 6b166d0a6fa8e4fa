"""A process whose transport Ray uses as well."""

from __future__ import annotations

from typing import Any

from rdt_conformance.engines.reference.worker import Worker


class RayWorker(Worker):
    """Like `Worker`, with Ray's store and manager in place of its own. The transport tells its calls itself."""

    def call(self, transport: str, method: str, *args: Any, obj_id: str = "", **kwargs: Any) -> Any:
        """Call one method of this process's transport."""
        return getattr(self.registry.instance(transport), method)(*args, **kwargs)
