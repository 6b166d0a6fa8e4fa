"""Ray without types: type checkers do not know what its decorators make, nor all of its options."""

from __future__ import annotations

from typing import Any


def the_ray() -> Any:
    """The module ``ray``, imported when it is needed: it takes seconds."""
    import ray

    return ray


def the_rdt_manager() -> Any:
    """What Ray keeps of this process's objects; made now if it is not there yet."""
    from ray._private.worker import global_worker

    return global_worker.rdt_manager
