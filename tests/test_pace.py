"""A run on one engine keeps within its time."""

from __future__ import annotations

from rdt_conformance.checks.pace import Pace


def test_what_is_fast_enough_has_its_whole_time() -> None:
    pace = Pace(checks=10, seconds=60)
    for _ in range(10):
        assert pace.share() == 1
        pace.took(6)


def test_what_comes_first_may_take_longer() -> None:
    pace = Pace(checks=10, seconds=60)
    pace.took(15)
    assert pace.share() == 1


def test_whoever_is_late_has_less_until_it_is_not() -> None:
    pace = Pace(checks=10, seconds=60)
    pace.took(40)
    shares = []
    for _ in range(9):
        shares.append(pace.share())
        pace.took(1)
    assert shares[0] < 1
    assert shares[-1] == 1
    assert shares == sorted(shares)


def test_a_single_check_has_its_whole_time() -> None:
    assert Pace(checks=1, seconds=60).share() == 1
