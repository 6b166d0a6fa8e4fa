"""What programs make and look at inside processes. Every function is called there."""

from __future__ import annotations

import gc
import threading
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rdt_conformance.fidelity.steps import Candidate, Fit, Mishap, Shape

if TYPE_CHECKING:
    from rdt_conformance.engines.reference.worker import Worker
    from rdt_conformance.payloads.base import PayloadKind

SLOW_SECONDS = 0.5


class Deliberate(Exception):
    """What a call raises that is made to go wrong."""


def make(payload: Any, device: str, shape: Shape) -> Any:
    """The two tensors of a payload in a value of some shape."""
    first, second = payload.build(device)
    match shape:
        case Shape.LIST:
            return [first, second]
        case Shape.SINGLE:
            return first
        case Shape.NESTED:
            return {"first": (first, {"deep": [second, "text"]}), "number": 3, "none": None}
        case Shape.TWICE:
            return [first, second, first]
        case Shape.NONE:
            return {"no": ["tensors"]}


def make_buffers(kind: PayloadKind, payload: Any, device: str, fit: Fit) -> list[list[Any]]:
    """Target buffers for the two tensors of a payload, as a list of those for one object."""
    buffers = list(kind.buffers(payload, device))
    match fit:
        case Fit.GOOD:
            pass
        case Fit.FEWER:
            buffers = buffers[:1]
        case Fit.SHORTER:
            buffers[0] = buffers[0][:-1]
        case Fit.OTHER_DTYPE:
            buffers[0] = buffers[0] > 0
        case Fit.GAPS:
            buffers[0] = buffers[0].repeat(2)[::2]
    return [buffers]


def change(value: Any) -> None:
    """Write into every tensor of a value."""
    for tensor in {id(tensor): tensor for tensor in _tensors(value)}.values():
        tensor += 1


def describe(value: Any) -> str:
    """A value in words: its structure, and of each tensor dtype, shape, contents, and which are the same one."""
    return _describe(value, {})


def _describe(value: Any, seen: dict[int, str]) -> str:
    if _is_tensor(value):
        if id(value) in seen:
            return f"{seen[id(value)]} again"
        seen[id(value)] = f"t{len(seen) + 1}"
        contents = zlib.crc32(repr(value.tolist()).encode())
        return f"{seen[id(value)]} {value.dtype}{list(value.shape)} {contents:08x}"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key}: {_describe(part, seen)}" for key, part in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list | tuple):
        inside = ", ".join(_describe(part, seen) for part in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return repr(value)


def _tensors(value: Any) -> list[Any]:
    if _is_tensor(value):
        return [value]
    parts = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else []
    return [tensor for part in parts for tensor in _tensors(part)]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "tolist")


def kept(worker: Worker, obj_id: str) -> str:
    """What this process knows or keeps of an object."""
    return ", ".join(worker.kept_of(obj_id)) or "nothing"


# --- calls that go wrong ------------------------------------------------------------------------------------------


def make_trouble(worker: Worker, transport: str, method: str, mishap: Mishap) -> None:
    """Let the next call of a method of this process's transport go wrong. The call itself is recorded as any other."""
    instance = worker.registry.instance(transport)
    owner = _original(worker, transport)
    right = getattr(owner, method)
    was_its_own = method in vars(owner)

    def once(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is not instance:  # of another actor, where several live in one process
            return right(self, *args, **kwargs)
        put_right()
        return _gone_wrong(mishap, method, lambda: right(self, *args, **kwargs))

    def put_right() -> None:
        if was_its_own:
            setattr(owner, method, right)
        else:
            delattr(owner, method)
        _troubles.remove(put_right)

    _troubles.append(put_right)
    setattr(owner, method, once)


_troubles: list[Callable[[], None]] = []


def end_troubles(worker: Worker) -> None:
    """Let every method be as it was, and free what only an error keeps alive.

    The frames of a receive's error refer to the error that Ray keeps, and to the references that the task was given.
    """
    for put_right in reversed(_troubles[:]):
        put_right()
    gc.collect()


def _gone_wrong(mishap: Mishap, method: str, call: Callable[[], Any]) -> Any:
    match mishap:
        case Mishap.RAISE:
            raise Deliberate(method)
        case Mishap.TIME_OUT:
            raise TimeoutError(method)
        case Mishap.SLOW:
            threading.Event().wait(SLOW_SECONDS)
            return call()
        case Mishap.ODD_DEVICE:
            described = call()
            described.tensor_device = "nowhere"
            return described


def _original(worker: Worker, transport: str) -> type:
    """The class whose methods the engine calls and records."""
    cls = type(worker.registry.instance(transport))
    return getattr(cls, "__rdt_recorded__", cls)


# --- registering --------------------------------------------------------------------------------------------------

_NEW_NAME = "fidelity_new"


def register(worker: Worker, transport: str, candidate: Candidate) -> str:
    """Let this process try to register something, and forget it again; what came of it."""
    registry, known = worker.registry, worker.registry.find(transport)
    rest = (list(known.devices), known.transport_class, known.data_type)
    match candidate:
        case Candidate.SAME_NAME:
            registry.register(transport, *rest)
        case Candidate.OTHER_CASE:
            registry.register(transport.lower(), *rest)
        case Candidate.NO_TRANSPORT:
            registry.register(_NEW_NAME, list(known.devices), object, known.data_type)  # pyright: ignore[reportArgumentType]
        case Candidate.NEW_NAME:
            try:
                registry.register(_NEW_NAME, *rest)
                registry.register(_NEW_NAME.upper(), *rest)
            finally:
                registry.forget(_NEW_NAME)
    return "registered"
