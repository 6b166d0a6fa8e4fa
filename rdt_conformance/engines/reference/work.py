"""What runs on an actor's lanes on behalf of an owner. Every function is a message (see `host`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray.experimental import TensorTransportMetadata

from rdt_conformance import pickling
from rdt_conformance.engines.reference import packing
from rdt_conformance.engines.reference.errors import ProtocolError
from rdt_conformance.history import describe_error
from rdt_conformance.ray_interface import no_buffers

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Created:
    """A new object as its owner comes to know it: the CPU part of the value and the transport's metadata."""

    skeleton: bytes
    metadata: bytes
    """Empty for a value that no transport has to do with."""
    count: int = 0
    """How many tensors it has."""


@dataclass(frozen=True)
class Passed:
    """An argument whose tensors come through a transport."""

    obj_id: str
    skeleton: bytes
    count: int


@dataclass(frozen=True)
class Task:
    """A call of user code on an actor's main lane. `function` gets the worker, then the arguments.

    `args` and `kwargs` hold pickled values, or `Passed` for refs.
    """

    function: Callable[..., Any]
    args: Sequence[bytes | Passed]
    kwargs: Mapping[str, bytes | Passed]
    obj_id: str
    transport: str | None
    """The transport for the tensors of the returned value; None returns it by value."""


def run_task(worker: Worker, task: Task) -> Created | bytes:
    """Wait for the arguments' tensors, run the task, and put the returned value's tensors into the store."""
    timeout = worker.settings.fetch_fail_timeout
    arguments = [*task.args, *task.kwargs.values()]
    # One copy per object, however often the call names it.
    counts = {argument.obj_id: argument.count for argument in arguments if isinstance(argument, Passed)}
    tensors = {obj_id: _take(worker, obj_id, count, timeout) for obj_id, count in counts.items()}

    def value(argument: bytes | Passed) -> Any:
        if isinstance(argument, Passed):
            return packing.put_back(argument.skeleton, tensors[argument.obj_id])
        return pickling.loads(argument)

    args = [value(argument) for argument in task.args]
    kwargs = {name: value(argument) for name, argument in task.kwargs.items()}
    returned = task.function(worker, *args, **kwargs)
    if task.transport is None:
        return pickling.dumps(returned)
    return create(worker, task.obj_id, returned, task.transport)


def _take(worker: Worker, obj_id: str, count: int, timeout: float) -> list[Any]:
    try:
        return worker.store.take(obj_id, timeout)
    except Exception:
        if count == 0:  # Ray does not look at what came of receiving an object without tensors
            return []
        raise


def create(worker: Worker, obj_id: str, value: Any, transport: str, *, only_tensors: bool = False) -> Created:
    """Take the tensors out of `value`, store them, and let the transport describe them.

    Args:
        worker: the source.
        obj_id: the new object's.
        value: what the object is.
        transport: what carries its tensors.
        only_tensors: leave a value without tensors alone, as Ray does in a put but not in a task.

    Raises:
        ProtocolError: the transport names a device that it is not registered for, which Ray refuses.
    """
    registration = worker.registry.find(transport)
    skeleton, tensors = packing.take_out(value, registration.data_type)
    if only_tensors and not tensors:
        return Created(skeleton, b"")
    described = worker.store.add_primary(obj_id, tensors)
    try:
        metadata = extract(worker, obj_id, described, transport)
    except Exception:
        worker.store.drop_primary(obj_id)
        raise
    if metadata.tensor_meta and metadata.tensor_device not in registration.devices:
        free(worker, obj_id, transport, dump(metadata))
        raise ProtocolError(
            f"tensor_device is {metadata.tensor_device!r} ({type(metadata.tensor_device).__name__}), not one of the "
            f"registered device types {', '.join(map(repr, registration.devices))}"
        )
    return Created(skeleton, dump(metadata), len(tensors))


def extract(worker: Worker, obj_id: str, tensors: list[Any], transport: str) -> Any:
    """Let the transport describe the tensors of an object.

    Raises:
        ProtocolError: what came back describes nothing.
    """
    metadata = worker.call(transport, "extract_tensor_transport_metadata", obj_id, tensors, obj_id=obj_id)
    if not isinstance(metadata, TensorTransportMetadata):
        raise ProtocolError(
            f"extract_tensor_transport_metadata returned {type(metadata).__name__}, not a TensorTransportMetadata"
        )
    return metadata


def dump(metadata: Any) -> bytes:
    """Pickle what a transport wants to have carried to another process.

    Raises:
        ProtocolError: it cannot be pickled.
    """
    try:
        return pickling.dumps(metadata)
    except Exception as error:
        raise ProtocolError(f"{type(metadata).__name__} cannot be pickled: {describe_error(error)}") from error


def load(pickled: bytes) -> Any:
    """Unpickle what a transport wanted to have carried here.

    Raises:
        ProtocolError: it cannot be unpickled.
    """
    try:
        return pickling.loads(pickled)
    except Exception as error:
        raise ProtocolError(f"metadata cannot be unpickled: {describe_error(error)}") from error


def send(worker: Worker, obj_id: str, metadata: bytes, communicator: bytes, transport: str) -> None:
    """The source's half of a two-sided transfer."""
    worker.call(
        transport,
        "send_multiple_tensors",
        worker.store.primary(obj_id),
        load(metadata),
        load(communicator),
        obj_id=obj_id,
    )


def receive(worker: Worker, obj_id: str, metadata: bytes, communicator: bytes, transport: str) -> None:
    """The destination's half of a transfer. A failure is kept for the consumer and also told to the monitor."""
    try:
        described = load(metadata)
        arguments = obj_id, described, load(communicator), *no_buffers()
        tensors = worker.call(transport, "recv_multiple_tensors", *arguments, obj_id=obj_id)
        if not isinstance(tensors, Sequence):
            raise ProtocolError(f"received a {type(tensors).__name__}, not a list of tensors")
        if len(tensors) != len(described.tensor_meta):
            raise ProtocolError(f"received {len(tensors)} tensors where {len(described.tensor_meta)} were described")
    except Exception as error:
        worker.store.add_error(obj_id, error)
        raise
    worker.store.add_received(obj_id, list(tensors))


def discard(worker: Worker, obj_id: str) -> None:
    """Let go of what a transfer has brought for a task that never came."""
    worker.store.discard(obj_id)


def fail(worker: Worker, obj_id: str, error: Exception) -> None:
    """Tell the destination that a transfer could not even be started."""
    worker.store.add_error(obj_id, error)


def free(worker: Worker, obj_id: str, transport: str, metadata: bytes) -> None:
    """Let the transport clean up, then let go of the tensors. Freeing twice is harmless."""
    try:
        tensors = worker.store.primary(obj_id)
    except KeyError:
        return
    try:
        worker.call(transport, "garbage_collect", obj_id, load(metadata), tensors, obj_id=obj_id)
    except Exception:
        logger.exception("transport %s failed to collect object %s", transport, obj_id)
    finally:
        worker.store.drop_primary(obj_id)


def abort(worker: Worker, obj_id: str, communicator: bytes, transport: str) -> None:
    """Interrupt a transfer on this side."""
    worker.call(transport, "abort_transport", obj_id, load(communicator), obj_id=obj_id)


def read_primary(worker: Worker, obj_id: str) -> bytes:
    """The tensors by value: a get through the object store."""
    return pickling.dumps(worker.store.wait_primary(obj_id, worker.settings.fetch_fail_timeout))
