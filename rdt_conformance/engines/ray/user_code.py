"""What processes do when a suite asks them to, in Ray's own words. Every function is a message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rdt_conformance.engines.base import Lane
from rdt_conformance.engines.reference.context import inside
from rdt_conformance.engines.untyped import the_ray, the_rdt_manager
from rdt_conformance.ray_interface import installed_interface

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker

_METADATA_SECONDS = 3.0
"""For the metadata of an object to follow it."""


def put(worker: Worker, key: int, transport: str) -> Any:
    """Put tensors that the process already has."""
    return the_ray().put(worker.held[key], _tensor_transport=transport)


def get(worker: Worker, timeout: float | None, through_store: bool, buffers: int | None, refs: Sequence[Any]) -> int:
    """Get objects, into the kept buffers of key `buffers` if there is one, and keep them."""
    from ray.experimental import set_target_for_ref

    if buffers is not None:
        for ref, target in zip(refs, worker.held[buffers], strict=True):
            set_target_for_ref(ref, target)
    return worker.keep(the_ray().get(list(refs), timeout=timeout, _use_object_store=through_store))


def get_onto(worker: Worker, device: str, timeout: float | None, ref: Any) -> int:
    """Get an object onto a device and keep it. Before Ray 2.58 none can be named: it arrives on that of the source."""
    if installed_interface().target_devices:
        from ray.experimental.rdt.rdt_manager import set_target_device_for_ref

        set_target_device_for_ref(ref, device)
    return worker.keep(the_ray().get([ref], timeout=timeout))


def wait_freed(worker: Worker, key: int, timeout: float) -> None:
    """Wait until no object of this process holds the first kept tensor of `key`."""
    from ray.experimental import wait_tensor_freed

    wait_tensor_freed(worker.held[key][0], timeout)


def still_stored(worker: Worker, obj_ids: Sequence[str]) -> list[str]:
    """Which of these objects the process still keeps tensors of."""
    store = the_rdt_manager().rdt_store
    return [obj_id for obj_id in obj_ids if store.has_object(obj_id)]


def forget_failed(worker: Worker, obj_ids: Sequence[str]) -> None:
    """Let go of objects whose extract raised: Ray 2.60 keeps their tensors for ever."""
    store = the_rdt_manager().rdt_store
    for obj_id in obj_ids:
        if store.has_object(obj_id):
            store.pop_object(obj_id)


def unmade(worker: Worker, obj_ids: Iterable[str]) -> list[str]:
    """Which of these objects the owner would free if it knew that they exist."""
    manager = the_rdt_manager()
    with manager._lock:
        return [obj_id for obj_id in obj_ids if obj_id in manager._queued_frees]


def forget_unmade(worker: Worker, obj_id: str) -> None:
    """Let the owner forget an object that does not come to exist any more."""
    manager = the_rdt_manager()
    with manager._lock:
        manager._queued_frees.discard(obj_id)
        manager._managed_rdt_metadata.pop(obj_id, None)


def forget_borrowed(worker: Worker, obj_ids: Iterable[str]) -> None:
    """Let the process forget objects that are gone: Ray 2.60 keeps the metadata of what was borrowed for ever."""
    manager = the_rdt_manager()
    with manager._lock:
        for obj_id in obj_ids:
            manager._managed_rdt_metadata.pop(obj_id, None)


def wait_made(refs: Sequence[Any], seconds: float) -> None:
    """Wait until the owner of objects, this process, knows them, or that they could not be made."""
    different = list(dict.fromkeys(refs))
    the_ray().wait(different, num_returns=len(different), timeout=seconds, fetch_local=False)
    # Word of an object and of its metadata come one after the other; of one that could not be made, only the former.
    manager = the_rdt_manager()
    for ref in different:
        if manager.is_managed_object(ref.hex()):
            with contextlib.suppress(KeyError):  # freed meanwhile
                manager.wait_for_tensor_transport_metadata(ref.hex(), _METADATA_SECONDS)


def metadata_of(worker: Worker, obj_id: str) -> Any:
    """What the owner knows of an object, once that exists; None if it does not come to exist."""
    return the_rdt_manager().wait_for_tensor_transport_metadata(obj_id, worker.settings.fetch_fail_timeout)


def replace_metadata(worker: Worker, obj_id: str, metadata: Any) -> None:
    """Let the owner hand out other metadata."""
    manager = the_rdt_manager()
    with manager._lock:
        known = manager._managed_rdt_metadata[obj_id]
        manager._managed_rdt_metadata[obj_id] = known._replace(tensor_transport_meta=metadata)


def set_fetch_fail_timeout(worker: Worker | None, seconds: float) -> None:
    """What RAY_rdt_fetch_fail_timeout_milliseconds would have done, had it been there when Ray was imported."""
    from ray._private import ray_constants

    ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS = seconds


def thread_ident(worker: Worker) -> int:
    """Which thread this lane is."""
    import threading

    return threading.get_ident()


def in_driver(worker: Worker, function: Any, *args: Any) -> Any:
    """Run `function(*args)` as user code of the driver, whichever lane this is: Ray has no other there."""
    with inside(worker, Lane.MAIN):
        return function(*args)
