"""One process of the reference RDT: its transports, its store, and the objects that it owns."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from rdt_conformance.engines.base import DRIVER, Origin, mark_origin
from rdt_conformance.engines.reference.context import current_lane
from rdt_conformance.engines.reference.errors import NeedsRayError, is_for_lack_of_ray
from rdt_conformance.engines.reference.groups import Groups
from rdt_conformance.engines.reference.host import Host
from rdt_conformance.engines.reference.owner import Owner
from rdt_conformance.engines.reference.registry import Registry
from rdt_conformance.engines.reference.store import Store
from rdt_conformance.history import Recorder
from rdt_conformance.words import count


class Destroys(Protocol):
    """Collective groups, as far as a failed transfer concerns them."""

    def destroy(self, name: str) -> None:
        """Destroy a group; ValueError if there is none of that name."""
        ...


@dataclass(frozen=True)
class Settings:
    """What Ray reads from its environment."""

    fetch_fail_timeout: float = 60.0
    """Seconds until a transfer is presumed lost (`RAY_rdt_fetch_fail_timeout_milliseconds`)."""


AS_IN_RAY = Settings()

_TENSORS_AT = {"extract_tensor_transport_metadata": 1, "send_multiple_tensors": 0, "garbage_collect": 2}
"""Which argument of a call is the list of an object's tensors."""


class Worker:
    """The state of one process. Everything that happens in it runs on one of its lanes.

    Args:
        name: ``driver`` or the actor's name.
        host: carries messages to other workers.
        registry: the transports known here.
        history: where transport calls are recorded.
    """

    def __init__(self, name: str, host: Host, registry: Registry, history: Recorder, settings: Settings) -> None:
        self.name = name
        self.host = host
        self.registry = registry
        self.history = history
        self.settings = settings
        self.store = Store()
        self.groups: Destroys = Groups()
        self.owner = Owner(self)
        self.held: dict[int, Any] = {}
        """Values that user code of this process keeps, by the keys that the harness knows them by."""
        self.described: dict[str, tuple[str, bytes, list[Any]]] = {}
        """Objects that single calls have described and not collected yet: the transport, the metadata, the tensors.

        Ray's store holds an object's tensors for as long, so a transport may count on their memory."""
        self.turn: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered around every transport call: where lanes go on one at a time, it waits until it is this one's."""
        self.get_up = threading.Semaphore(0)
        """Released when user code that keeps the main thread busy should end."""
        self._keys = itertools.count(1)
        self._object_numbers = itertools.count(1)
        self._put_task = uuid.uuid4().hex + uuid.uuid4().hex[:16]

    @property
    def is_driver(self) -> bool:
        """Whether this is the process that has no actor."""
        return self.name == DRIVER

    def call(self, transport: str, method: str, *args: Any, obj_id: str = "", **kwargs: Any) -> Any:
        """Call one method of this process's transport: the only place where the reference does so.

        The call is recorded, and an exception is marked with where it came from.
        """
        lane = current_lane().value
        with self.turn(), self.history.record(self.name, lane, describe_call(method, args, kwargs), obj_id) as event:
            try:
                result = getattr(self.registry.instance(transport), method)(*args, **kwargs)
            except Exception as error:
                mark_origin(error, Origin(method, self.name, lane))
                if is_for_lack_of_ray(error):
                    raise NeedsRayError(f"{method} calls into Ray: it needs the cluster or ray engine") from error
                raise
            event.outcome = describe_result(result)
            return result

    def keep(self, value: Any) -> int:
        """Keep `value` alive in this process, as user code with a variable would; returns its key."""
        key = next(self._keys)
        self.held[key] = value
        return key

    def is_empty(self) -> bool:
        """Whether no object is owned, borrowed or kept here."""
        return not (self.owner.known() or self.store.objects())

    def kept_of(self, obj_id: str) -> list[str]:
        """What there is of an object in this process: its metadata, its tensors."""
        known = {"metadata": self.owner.known(), "tensors": self.store.objects()}
        return [what for what, obj_ids in known.items() if obj_id in obj_ids]

    def close(self) -> None:
        """Let go of everything, the transport last."""
        self.owner.stop()
        self.held.clear()
        self.described.clear()
        self.registry.clear()

    def new_object_id(self, *, put: bool) -> str:
        """A fresh id of Ray's length: puts of one task share all but the last 8 digits, task returns do not."""
        task = self._put_task if put else uuid.uuid4().hex + uuid.uuid4().hex[:16]
        return task + next(self._object_numbers).to_bytes(4, "little").hex()


def describe_call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The call in a few words: the method, and what matters about its arguments."""
    notes = []
    if method in _TENSORS_AT and len(args) > _TENSORS_AT[method]:
        notes.append(count(len(args[_TENSORS_AT[method]]), "tensor"))
    if method == "get_communicator_metadata":
        notes += [f"no {side}" for side, actor in zip(("source", "destination"), args, strict=False) if actor is None]
    if kwargs.get("timeout") is not None:
        notes.append(f"timeout={kwargs['timeout']:.3g}")
    if len(args) > 3 and args[3] is not None and method.startswith(("recv", "fetch")):
        notes.append(f"into {count(len(args[3]), 'buffer')}")
    return f"{method}({', '.join(notes)})"


def describe_result(result: Any) -> str:
    """What a call returned, in a few words."""
    if isinstance(result, list):
        return count(len(result), "tensor")
    return "ok" if result is None else type(result).__name__
