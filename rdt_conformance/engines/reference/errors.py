"""What the reference RDT raises. A transport's own exceptions are passed on as they are."""

from __future__ import annotations


class GetTimeoutError(TimeoutError):
    """The user's timeout of a get ran out."""


class ObjectFetchTimedOutError(TimeoutError):
    """The system's own bound on a fetch ran out: the transfer is presumed lost."""


class ActorDiedError(RuntimeError):
    """The actor was killed, by a test or because a transport that cannot abort had a transfer fail."""


class NeedsRayError(RuntimeError):
    """A transport asked an actor handle for something that only a running Ray can do."""


class ProtocolError(RuntimeError):
    """A transport answered with something that Ray could not work with."""
