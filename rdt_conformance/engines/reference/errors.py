"""What the reference RDT raises. A transport's own exceptions are passed on as they are."""

from __future__ import annotations

from ray.exceptions import RaySystemError


class GetTimeoutError(TimeoutError):
    """The user's timeout of a get ran out."""


class ObjectFetchTimedOutError(TimeoutError):
    """The system's own bound on a fetch ran out: the transfer is presumed lost."""


class ActorDiedError(RuntimeError):
    """The actor was killed, by a test or because a transport that cannot abort had a transfer fail."""


class NeedsRayError(RuntimeError):
    """A transport asked for something that only a running Ray can do."""


class ProtocolError(RuntimeError):
    """A transport answered with something that Ray could not work with."""


def needs_ray(error: BaseException | None) -> NeedsRayError | None:
    """The error that says that a transport needs Ray, if that is what `error` came from."""
    while error is not None and not isinstance(error, NeedsRayError):
        error = error.__cause__ or error.__context__
    return error


def is_for_lack_of_ray(error: BaseException) -> bool:
    """Whether Ray raised this only because it does not run here."""
    return isinstance(error, RuntimeError | RaySystemError) and "Ray has not been" in str(error)
