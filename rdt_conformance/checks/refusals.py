"""What a transport may refuse, as long as it does so by an error and in bounded time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdt_conformance.engines.base import origin_of
from rdt_conformance.history import ARRIVALS, DESCRIBES, describe_error

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.base import Pending
    from rdt_conformance.engines.world import Held
    from rdt_conformance.history import History
    from rdt_conformance.payloads import Payload

EXACT = "exact"


def is_refusal(error: Exception | None) -> bool:
    """Whether an object was refused where it was described: it may be one too many."""
    origin = origin_of(error)
    return origin is not None and origin.method == DESCRIBES and isinstance(error, ValueError | MemoryError)


def is_full(error: Exception, history: History) -> bool:
    """Whether a source had no room for one more object beside those that it shares: its pool may be small.

    Only a MemoryError says so, and only a source that shares others may be full: else something is never given back.
    """
    origin = origin_of(error)
    if origin is None or origin.method != DESCRIBES or not isinstance(error, MemoryError):
        return False
    return history.always_refused_beside_others(origin.process)


def unless_buffers_are_refused(case: Case, receiving: Pending[Held], clause: str) -> Held | None:
    """What was received into target buffers; None if the transport refuses them by a ValueError, as it may.

    Args:
        case: the example that it belongs to.
        receiving: brings one object, or all of a get.
        clause: broken by any other error.
    """
    if not isinstance(case.error(receiving, clause), ValueError):
        return case.ok(receiving, clause)
    case.fact("target buffers", ["refused"])
    return None


def exact_or_refused(
    case: Case, receiving: Pending[Held], payload: Payload, clause: str, where: str, given_up: float
) -> str:
    """See a receive to its end; `EXACT`, or in words that and how it was refused.

    Args:
        case: the example that it belongs to.
        receiving: brings one object.
        payload: what that was made of.
        clause: broken if the receive is not answered.
        where: between which processes, for the message.
        given_up: seconds after which Ray gives a transfer up in this world.
    """
    error = case.error(receiving, seconds=5 * given_up + case.patience.call, by_ray=True)
    # That Ray gave up is no refusal if the transport still waits, and may be one if not: Ray 2.60 loses some errors.
    unanswered = error is not None and any(
        step.what.startswith(ARRIVALS) and step.ended is None for step in case.world.history.steps()
    )
    case.require(
        not unanswered, clause, f"{receiving.what} got no answer {where}, and was given up after {given_up:g} s"
    )
    if error is not None:
        return f"refused: {describe_error(error)}"
    case.arrived(case.ok(receiving), payload)
    return EXACT
