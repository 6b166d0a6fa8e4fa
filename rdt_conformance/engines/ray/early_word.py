"""Makes up for what Ray before 2.58 does not do: keep word of an object that comes before its owner has registered it.

The word comes on a thread of Ray's own, while the owner's is still on its way back from submitting the task. It is lost
then, and whoever wants the object waits until the timeout. Users hardly ever meet that; checks, which make many objects
on a machine that has much to do, meet it in every run, and it is not for the transport to answer for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rdt_conformance.engines.untyped import the_rdt_manager

_TAKES_IN = "set_tensor_transport_metadata_and_trigger_queued_operations"
_SECONDS = 10.0
"""For the owner's thread to get on; after that it is as without this."""


def await_owner() -> Callable[[], None]:
    """Let word of an object wait until this process, which owns it, has registered it; returns what undoes that."""
    manager = the_rdt_manager()
    take_in = getattr(manager, _TAKES_IN)

    def once_registered(obj_id: str, metadata: Any) -> None:
        deadline = time.monotonic() + _SECONDS
        while not manager.is_managed_object(obj_id) and time.monotonic() < deadline:
            time.sleep(0.001)  # Ray tells of no event, and the other thread needs nothing of this one
        take_in(obj_id, metadata)

    setattr(manager, _TAKES_IN, once_registered)
    return lambda: delattr(manager, _TAKES_IN)
