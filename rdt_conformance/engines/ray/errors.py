"""Ray's errors in the terms of the reference, so that a suite need not know which of the two it runs on."""

from __future__ import annotations

from ray import exceptions

from rdt_conformance.engines.base import origin_of
from rdt_conformance.engines.reference.errors import ActorDiedError, ObjectFetchTimedOutError, ProtocolError

_DIED = (exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.OwnerDiedError)


def translated(error: BaseException) -> BaseException:
    """What lies behind an error that Ray wraps; an error of Ray's own by the reference's name."""
    seen = error
    while isinstance(seen, exceptions.RayTaskError) and isinstance(seen.cause, BaseException):
        seen = seen.cause
    if origin_of(seen) is not None:
        return seen
    if isinstance(seen, _DIED):
        return ActorDiedError(_line(seen))
    if isinstance(seen, exceptions.ObjectLostError):
        return ObjectFetchTimedOutError(_line(seen))
    if isinstance(seen, exceptions.RaySystemError | AssertionError):
        return ProtocolError(_line(seen))
    return seen


def _line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
