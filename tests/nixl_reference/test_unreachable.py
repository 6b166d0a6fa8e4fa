"""A peer that could not be reached is left alone for a while."""

from __future__ import annotations

import pytest

from reference_transports.nixl import unreachable
from reference_transports.nixl.unreachable import Unreachable

PEER, OTHER = b"one", b"another"


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(unreachable, "time", clock)
    return clock


def tries(peers: Unreachable, peer: bytes = PEER, *, is_there: bool = False) -> bool:
    """Whether it was tried at all."""
    tried = False
    try:
        with peers.reaching(peer):
            tried = True
            if not is_there:
                raise RuntimeError("connection refused")
    except (RuntimeError, ConnectionError):
        pass
    return tried


def test_it_is_tried_ever_more_rarely(clock: Clock) -> None:
    peers, tried = Unreachable(), 0
    for _ in range(10_000):
        tried += tries(peers)
        clock.now += 0.05
    assert 100 <= tried < 110, "in the end, every five seconds"


def test_others_are_not_concerned(clock: Clock) -> None:
    peers = Unreachable()
    assert tries(peers)
    assert not tries(peers)
    assert tries(peers, OTHER)


def test_what_was_reached_is_as_good_as_new(clock: Clock) -> None:
    peers = Unreachable()
    for is_there in (False, False, True):
        assert tries(peers, is_there=is_there)
        clock.now += 1
    assert tries(peers)
    clock.now += 0.15
    assert tries(peers)


def test_the_reason_is_told_again(clock: Clock) -> None:
    peers = Unreachable()
    tries(peers)
    clock.now += 0.06
    with (
        pytest.raises(ConnectionError, match=r"could not be reached 0\.1 s ago: connection refused"),
        peers.reaching(PEER),
    ):
        pass


def test_what_is_remembered_has_a_limit(clock: Clock) -> None:
    peers = Unreachable()
    for number in range(2_000):
        tries(peers, str(number).encode())
    assert tries(peers, b"0")
    assert not tries(peers, b"1999")
