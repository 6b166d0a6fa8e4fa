"""The verbs of RDT, in Ray's own words."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from rdt_conformance import pickling
from rdt_conformance.engines.base import DRIVER, Lane, Patience, converted
from rdt_conformance.engines.ray import user_code
from rdt_conformance.engines.reference.user_code import fail, nothing

if TYPE_CHECKING:
    from rdt_conformance.engines.ray.host import RayHost

_POLL = 0.002
"""Seconds between looks at Ray's stores: no event tells that Ray has freed an object."""


def _consume(handle: Any, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    return handle.consume.remote(*positional, **keywords)


class RayRef:
    """See `rdt_conformance.engines.rdt.Ref`."""

    def __init__(self, ref: Any, source: str) -> None:
        self.obj_id: str = ref.hex()
        self.source = source
        self.ray: Any = ref

    def drop(self) -> None:
        """Let go of the object now."""
        self.ray = None

    def __repr__(self) -> str:
        return f"Ref({self.obj_id[:8]}…{self.obj_id[-8:]})"


class RayRdt:
    """See `rdt_conformance.engines.rdt.Rdt`.

    Calls into Ray are made on threads of the driver's, since a transport can keep any of them for ever.
    """

    def __init__(self, host: RayHost, transport: str) -> None:
        self._host = host
        self._transport = transport
        self._made: dict[str, weakref.ref[RayRef]] = {}
        self._sources: dict[str, str] = {}
        self._freed: set[str] = set()

    def produce(self, actor: str, function: Callable[..., Any], args: Sequence[Any]) -> RayRef:  # noqa: D102
        message = pickling.dumps((function, args))
        submitted = self._submit(self._produce, actor, message)
        return submitted.result(Patience.call * 3)

    def _produce(self, actor: str, message: bytes) -> RayRef:
        handle = self._host.handle(actor)
        try:
            ref = handle.produce.options(tensor_transport=self._transport).remote(message)
        except Exception as error:  # the actor does not have the transport: whoever uses the object learns why
            ref = handle.produce.remote(pickling.dumps((fail, (error,))))
        return self._know(ref, actor)

    def put(self, process: str, tensors: int) -> Future[Any]:  # noqa: D102
        if process == DRIVER:
            done = self._host.submit(DRIVER, Lane.MAIN, user_code.put, tensors, self._transport)
        else:
            done = self._host.call_with_refs(process, user_code.put, (tensors, self._transport), None)
        return converted(done, lambda ref: self._know(ref, process))

    def consume(self, actor: str, refs: Sequence[Any], named: Mapping[str, Any]) -> Future[int]:  # noqa: D102
        positional, keywords = [ref.ray for ref in refs], {name: ref.ray for name, ref in named.items()}
        return self._host.answer_of(actor, _consume, positional, keywords)

    def get(  # noqa: D102
        self, process: str, refs: Sequence[Any], timeout: float | None, *, through_store: bool, buffers: int | None
    ) -> Future[int]:
        args = (timeout, through_store, buffers)
        if process == DRIVER:
            return self._host.submit(DRIVER, Lane.MAIN, user_code.get, *args, [ref.ray for ref in refs])
        return self._host.call_with_refs(process, user_code.get, args, [ref.ray for ref in refs], ready=True)

    def get_onto(self, ref: Any, device: str, timeout: float | None) -> Future[int]:  # noqa: D102
        return self._host.submit(DRIVER, Lane.MAIN, user_code.get_onto, device, timeout, ref.ray)

    def wait_freed(self, process: str, tensors: int, timeout: float) -> Future[None]:  # noqa: D102
        return self._host.submit(process, Lane.MAIN, user_code.wait_freed, tensors, timeout)

    def metadata_of(self, ref: Any) -> Future[bytes]:  # noqa: D102
        known = self._host.submit(DRIVER, Lane.SYSTEM, user_code.metadata_of, ref.obj_id)
        return converted(known, pickling.dumps)

    def replace_metadata(self, ref: Any, metadata: bytes) -> Future[None]:  # noqa: D102
        loaded = pickling.loads(metadata)
        return self._host.submit(DRIVER, Lane.SYSTEM, user_code.replace_metadata, ref.obj_id, loaded)

    def settle(self, seconds: float) -> bool:  # noqa: D102
        deadline = time.monotonic() + seconds
        return self._wait_freed(deadline) and self._barrier(Lane.SYSTEM, deadline)

    def tidy(self, seconds: float) -> bool:  # noqa: D102
        deadline = time.monotonic() + seconds
        return self._wait_freed(deadline) and self._forget_borrowed(deadline)

    def _wait_freed(self, deadline: float) -> bool:
        """Wait until no source has an object any more that nobody refers to; whether that came true."""
        while time.monotonic() < deadline:
            gone = {obj_id for obj_id, made in self._made.items() if (ref := made()) is None or ref.ray is None}
            waiting = self._waiting_to_be_freed(gone, deadline)
            if waiting is None:
                return False
            freed = gone - waiting
            for obj_id in freed:
                del self._made[obj_id], self._sources[obj_id]
            self._freed |= freed
            if not waiting:
                return True
            self._forget_failed(waiting, deadline)
            time.sleep(_POLL)
        return False

    def _waiting_to_be_freed(self, gone: set[str], deadline: float) -> set[str] | None:
        """Which objects that nobody refers to are still in their source's store; None if one of them does not say."""
        by_source: dict[str, list[str]] = {}
        for obj_id in gone:
            by_source.setdefault(self._sources[obj_id], []).append(obj_id)
        asked = [
            self._host.submit(source, Lane.IO, user_code.still_stored, obj_ids)
            for source, obj_ids in by_source.items()
            if self._host.is_alive(source)
        ]
        try:
            return {obj_id for answer in asked for obj_id in answer.result(max(0.0, deadline - time.monotonic()))}
        except Exception:
            return None

    def _forget_failed(self, obj_ids: set[str], deadline: float) -> None:
        """Let sources forget objects that were never made: Ray 2.60 keeps what an extract that raised was given."""
        if not self._host.submit(DRIVER, Lane.IO, user_code.unmade, obj_ids).result(Patience.call):
            return
        if not self._barrier(Lane.MAIN, deadline):  # whatever is still being made has been made then
            return
        unmade = self._host.submit(DRIVER, Lane.IO, user_code.unmade, obj_ids).result(Patience.call)
        for obj_id in unmade:
            self._host.submit(self._sources[obj_id], Lane.IO, user_code.forget_failed, [obj_id])
            self._host.submit(DRIVER, Lane.IO, user_code.forget_unmade, obj_id)

    def _forget_borrowed(self, deadline: float) -> bool:
        """Let all processes forget what has been freed, after what Ray itself still has to do there."""
        freed, self._freed = self._freed, set()
        self._host.submit(DRIVER, Lane.IO, user_code.forget_borrowed, freed)
        return self._barrier(Lane.SYSTEM, deadline, user_code.forget_borrowed, freed)

    def _barrier(self, lane: Lane, deadline: float, last: Callable[..., None] = nothing, *args: Any) -> bool:
        """Wait for what Ray still has to do on a lane of all actors, and do one thing more there."""
        passed = [self._host.submit(name, lane, last, *args) for name in self._host.actors()]
        try:
            for each in passed:
                each.result(max(0.0, deadline - time.monotonic()))
        except Exception:
            return False
        return True

    def _submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._host.submit(DRIVER, Lane.SYSTEM, user_code.in_driver, function, *args)

    def _know(self, ref: Any, source: str) -> RayRef:
        known = RayRef(ref, source)
        self._made[known.obj_id] = weakref.ref(known)
        self._sources[known.obj_id] = source
        return known
