"""Transfers made of single transport calls, as Ray makes them, for checks that need something to happen in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdt_conformance.engines.base import Hung, Pending

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.world import Held, Process


def transfer(
    case: Case,
    source: Process,
    destination: Process,
    obj_id: str,
    tensors: Held,
    metadata: bytes,
    *,
    clause: str | None = None,
    seconds: float | None = None,
) -> Held:
    """One transfer of a described object, whichever kind the transport is; what arrived.

    Args:
        clause: broken if a call fails; the check's first one if none is given.
        seconds: bound on the transfer, for objects that are not small.
    """
    comm = case.ok(case.driver.communicator(source, destination), clause)
    sending = begin_send(case, source, obj_id, tensors, metadata, comm)
    receiving = destination.recv(obj_id, metadata, comm)
    if sending is None:
        return case.ok(receiving, clause, seconds)
    try:
        receiving.wait_with(sending, seconds or case.patience.call)
    except Hung as hung:
        raise case.hung(hung, clause) from None
    if sending.done():
        case.ok(sending, clause)  # one that has failed leaves its receive waiting for ever
    received = case.ok(receiving, clause, seconds)
    case.ok(sending, clause, seconds)
    return received


def begin_send(
    case: Case, source: Process, obj_id: str, tensors: Held, metadata: bytes, comm: bytes
) -> Pending[None] | None:
    """The source's half of a transfer, if the transport has one."""
    if case.target.one_sided.value:
        return None
    return source.send(obj_id, tensors, metadata, comm)
