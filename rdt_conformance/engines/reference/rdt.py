"""The verbs of RDT, carried out by the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from rdt_conformance.engines.base import DRIVER, Lane
from rdt_conformance.engines.reference import user_code

if TYPE_CHECKING:
    from rdt_conformance.engines.rdt import Ref
    from rdt_conformance.engines.reference.host import Processes
    from rdt_conformance.engines.reference.worker import Worker


class ReferenceRdt:
    """See `rdt_conformance.engines.rdt.Rdt`. User code of actors runs as tasks that the driver submits."""

    def __init__(self, host: Processes, transport: str) -> None:
        self._host = host
        self._transport = transport
        self._owner = host.driver.owner

    def produce(self, actor: str, function: Callable[..., Any], args: Sequence[Any]) -> Ref:  # noqa: D102
        return self._owner.create_by_task(actor, function, self._transport, args)

    def put(self, process: str, tensors: int) -> Future[Ref]:  # noqa: D102
        return self._as_user_code(process, user_code.put, tensors, self._transport)

    def consume(self, actor: str, refs: Sequence[Ref], named: Mapping[str, Ref]) -> Future[int]:  # noqa: D102
        return self._owner.call_task(actor, user_code.keep, refs, named)

    def get(  # noqa: D102
        self, process: str, refs: Sequence[Ref], timeout: float | None, *, through_store: bool, buffers: int | None
    ) -> Future[int]:
        return self._getting(process, refs, user_code.get, list(refs), timeout, through_store, buffers)

    def get_onto(self, ref: Ref, device: str, timeout: float | None) -> Future[int]:  # noqa: D102
        return self._getting(DRIVER, [ref], user_code.get_onto, ref, device, timeout)

    def wait_freed(self, process: str, tensors: int, timeout: float) -> Future[None]:  # noqa: D102
        return self._host.submit(process, Lane.MAIN, user_code.wait_freed, tensors, timeout)

    def metadata_of(self, ref: Ref) -> Future[bytes]:  # noqa: D102
        return self._host.submit(DRIVER, Lane.MAIN, _metadata_of, ref)

    def replace_metadata(self, ref: Ref, metadata: bytes) -> Future[None]:  # noqa: D102
        return self._host.submit(DRIVER, Lane.MAIN, _replace_metadata, ref, metadata)

    def settle(self, seconds: float) -> bool:
        """Everything that the reference does is a job on some lane: there is nothing more to wait for."""
        return True

    def tidy(self, seconds: float) -> bool:
        """The reference forgets by itself."""
        return self.settle(seconds)

    def _getting(self, process: str, refs: Sequence[Ref], function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Get objects, which stay until that is over even if every other reference is dropped meanwhile."""
        if process != DRIVER:
            return self._as_user_code(process, function, *args)  # the references that are lent to it hold them
        let_go = self._owner.hold(refs)
        getting = self._as_user_code(process, function, *args)
        getting.add_done_callback(lambda _: let_go())
        return getting

    def _as_user_code(self, process: str, function: Callable[..., Any], *args: Any) -> Future[Any]:
        if process == DRIVER:
            return self._host.submit(DRIVER, Lane.MAIN, function, *args)
        return self._owner.call_task(process, function, args)


def _metadata_of(worker: Worker, ref: Any) -> bytes:
    return worker.owner.entry(ref).created.result(worker.settings.fetch_fail_timeout).metadata


def _replace_metadata(worker: Worker, ref: Any, metadata: bytes) -> None:
    entry = worker.owner.entry(ref)
    created = dataclasses.replace(entry.created.result(0), metadata=metadata)
    entry.created = Future()
    entry.created.set_result(created)
