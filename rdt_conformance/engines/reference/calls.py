"""Single transport calls, made as Ray makes them but one by one, so that a suite decides what comes between.

Metadata travel as pickled bytes and are unpickled for every call, as they are in Ray. Every function is a message.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rdt_conformance.engines.base import DRIVER, Lane
from rdt_conformance.engines.reference.work import dump, load
from rdt_conformance.ray_interface import no_buffers

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker

logger = logging.getLogger(__name__)


def extract(worker: Worker, transport: str, obj_id: str, tensors: int) -> bytes:
    """extract_tensor_transport_metadata for kept tensors, which are alive until the object is collected."""
    held = worker.held[tensors]
    metadata = dump(worker.call(transport, "extract_tensor_transport_metadata", obj_id, held, obj_id=obj_id))
    worker.described[obj_id] = (transport, metadata, held)
    return metadata


def communicator(worker: Worker, transport: str, source: str | None, destination: str | None) -> bytes:
    """get_communicator_metadata; None for both as in a get, None for the source as in a driver's put."""
    handles = [None if name is None else worker.host.handle(name) for name in (source, destination)]
    return dump(worker.call(transport, "get_communicator_metadata", *handles, transport))


def has_transport(worker: Worker, transport: str, actor: str) -> bool:
    """actor_has_tensor_transport, which Ray asks before every call of a method that returns tensors."""
    return worker.call(transport, "actor_has_tensor_transport", worker.host.handle(actor))


def send(worker: Worker, transport: str, obj_id: str, tensors: int, metadata: bytes, comm: bytes) -> None:
    """send_multiple_tensors for kept tensors. The id is only for the history: Ray does not pass it."""
    worker.call(
        transport,
        "send_multiple_tensors",
        worker.held[tensors],
        load(metadata),
        load(comm),
        obj_id=obj_id,
    )


def recv(worker: Worker, transport: str, obj_id: str, metadata: bytes, comm: bytes, buffers: int | None) -> int:
    """recv_multiple_tensors; keeps what arrived. Without buffers it is called as the installed Ray does."""
    extra = no_buffers() if buffers is None else (worker.held[buffers],)
    arguments = (obj_id, load(metadata), load(comm), *extra)
    return worker.keep(worker.call(transport, "recv_multiple_tensors", *arguments, obj_id=obj_id))


def fetch(worker: Worker, transport: str, obj_id: str, metadata: bytes, comm: bytes, buffers: int | None) -> int:
    """fetch_multiple_tensors; keeps the request."""
    target = None if buffers is None else worker.held[buffers]
    arguments = (obj_id, load(metadata), load(comm), target)
    return worker.keep(worker.call(transport, "fetch_multiple_tensors", *arguments, obj_id=obj_id))


def wait(worker: Worker, transport: str, obj_id: str, request: int, timeout: float) -> int:
    """wait_fetch_complete for a kept request, which stays kept; keeps what arrived."""
    held = worker.held[request]
    return worker.keep(worker.call(transport, "wait_fetch_complete", held, timeout=timeout, obj_id=obj_id))


def collect(worker: Worker, transport: str, obj_id: str, metadata: bytes, tensors: int) -> None:
    """garbage_collect for kept tensors, which stay kept until the suite drops them."""
    worker.described.pop(obj_id, None)
    worker.call(transport, "garbage_collect", obj_id, load(metadata), worker.held[tensors], obj_id=obj_id)


def collect_lane(process: str) -> Lane:
    """Where Ray calls garbage_collect: the driver has no lane of its own for it."""
    return Lane.IO if process == DRIVER else Lane.SYSTEM


def collect_what_is_left(worker: Worker) -> None:
    """garbage_collect for every object that was described here by a single call and not collected since.

    Ray does so for every object in the end. What a transport raises is logged, as Ray does.
    """
    while worker.described:
        obj_id, (transport, metadata, tensors) = worker.described.popitem()
        try:
            worker.call(transport, "garbage_collect", obj_id, load(metadata), tensors, obj_id=obj_id)
        except Exception:
            logger.exception("transport %s failed to collect object %s", transport, obj_id)


def abort(worker: Worker, transport: str, obj_id: str, comm: bytes) -> None:
    """abort_transport."""
    worker.call(transport, "abort_transport", obj_id, load(comm), obj_id=obj_id)


def ask(worker: Worker, transport: str, method: str, args: tuple[Any, ...]) -> Any:
    """Any other method, for what it answers."""
    return worker.call(transport, method, *args)
