"""What actors do when a suite asks them to: stands in for a user's actor methods. Every function is a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rdt_conformance.engines.reference.context import current_lane

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.refs import Ref
    from rdt_conformance.engines.reference.worker import Worker
    from rdt_conformance.payloads.base import Payload


def build(worker: Worker, payload: Payload, device: str) -> list[Any]:
    """A task that makes tensors and returns them."""
    return payload.build(device)


def release(worker: Worker, key: int) -> list[Any]:
    """A task that returns tensors which the actor already has, and keeps them."""
    return worker.held[key]


def fail(worker: Worker, error: Exception) -> None:
    """A task that raises instead of returning tensors."""
    raise error


def keep(worker: Worker, *values: Any, **named: Any) -> int:
    """A task that takes objects as arguments and keeps them; the key stands for all values in order."""
    return worker.keep([*values, *named.values()])


def put(worker: Worker, key: int, transport: str) -> Ref:
    """Put tensors that the process already has, and hand the reference out."""
    return worker.owner.put(worker.held[key], transport)


def get(worker: Worker, refs: Sequence[Ref], timeout: float | None, through_store: bool, buffers: int | None) -> int:
    """Get objects, into the kept buffers of key `buffers` if there is one, and keep them."""
    if buffers is not None:
        for ref, target in zip(refs, worker.held[buffers], strict=True):
            worker.owner.set_target_buffers(ref, target)
    return worker.keep(worker.owner.get(refs, timeout, through_store=through_store))


def get_onto(worker: Worker, ref: Ref, device: str, timeout: float | None) -> int:
    """Get an object onto a device and keep it."""
    worker.owner.set_target_device(ref, device)
    return worker.keep(worker.owner.get([ref], timeout))


def wait_freed(worker: Worker, key: int, timeout: float) -> None:
    """Wait until no object of this process holds the first kept tensor of `key`."""
    worker.store.wait_freed(worker.held[key][0], timeout)


def apply(worker: Worker, key: int, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run `function(kept value, *args)` in this process."""
    return function(worker.held[key], *args)


def build_and_keep(worker: Worker, function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """Keep whatever `function(*args)` returns."""
    return worker.keep(function(*args))


def forget(worker: Worker, key: int) -> None:
    """Drop a kept value. If that is a request which ends its transfer then, the history tells of it."""
    value = worker.held.pop(key, None)
    if hasattr(type(value), "__del__") and (obj_id := getattr(value, "obj_id", "")):
        with worker.history.record(worker.name, current_lane().value, "drop of the request", obj_id) as event:
            del value
            event.outcome = "ok"


def nothing(worker: Worker) -> None:
    """Comes back when everything before it has."""


def sit_still(worker: Worker, seconds: float) -> None:
    """Keep the main thread busy, as a long-running method would, until `get_up` or for `seconds` at most."""
    worker.get_up.acquire(timeout=seconds)


def get_up(worker: Worker) -> None:
    """End `sit_still`."""
    worker.get_up.release()
