"""When growth is called a leak: the rule by itself, on counts that follow a formula."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rdt_conformance.observe import Resources
from rdt_conformance.observe.leaks import Growth, growth
from rdt_conformance.observe.resources import MEMORY

MIB = 1 << 20
Formula = Callable[[int], float]
"""How much there is after so many cycles."""


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes away by itself here."""
    monkeypatch.setattr("rdt_conformance.observe.leaks._PATIENCE", 0.0)


@dataclass
class Formulas:
    """Stands for a process of which one kind of thing follows a formula."""

    kind: str
    formula: Formula
    cycles: int = 0

    def run(self, cycles: int) -> None:
        self.cycles += cycles

    def settled(self) -> Resources:
        return Resources({MEMORY: 100 * MIB, self.kind: int(self.formula(self.cycles))}, {})


def judge(formula: Formula, *, kind: str = "sockets", most: int = 110, rounds: int = 4, payload: int = 0) -> Growth:
    """Rounds of ten cycles: with four, it is counted after 10, 20, 30, 40 and 50, then after 70, 110 and 190."""
    process = Formulas(kind, formula)
    return growth(
        process.run,
        process,
        cycles=10,
        rounds=rounds,
        most_cycles=most,
        deadline=time.monotonic() + 60,
        payload_bytes=payload,
    )


@pytest.mark.parametrize(
    ("formula", "leaks"),
    [
        (lambda n: n, True),
        (lambda n: n // 2, True),
        (lambda n: 5, False),
        (lambda n: -n, False),
        (lambda n: min(n, 60), False),
        # In two of three rounds, and in the end it has grown by little since half of the cycles, or by enough.
        (lambda n: 10 * (n // 15), True),
        (lambda n: min(n, 60) + max(0, n - 60) // 20, False),
        (lambda n: min(n, 60) + max(0, n - 60) // 2, True),
        # In one of three rounds only.
        (lambda n: 10 * (n >= 40) + max(0, n - 50), False),
        # As much less as more before, though in two of three.
        (lambda n: {30: 5, 40: 10}.get(n, 0) + max(0, n - 50), False),
    ],
)
def test_what_grows_for_good(formula: Formula, leaks: bool) -> None:
    found = judge(formula)
    assert [leak.kind for leak in found.leaks] == (["sockets"] if leaks else [])
    assert ("sockets" in found.steady) is not leaks
    assert found.judged


def test_in_half_of_the_rounds_is_not_in_most() -> None:
    found = judge(lambda n: 10 * (n >= 30) + 10 * (n >= 50) + max(0, n - 60), rounds=5)
    assert not found.leaks and found.cycles == 50


def test_the_last_part_may_be_too_short_for_another() -> None:
    """What comes in pieces every fifteen cycles is looked for in half of all, and not in the last five alone."""
    (leak,) = judge(lambda n: 10 * (n // 15), most=115).leaks
    assert (leak.before, leak.after, leak.cycles) == (0, 70, 105)
    assert leak.per_cycle == 70 / 105


def test_fewer_than_three_are_no_leak() -> None:
    assert not judge(lambda n: (n >= 30) + (n >= 40), most=50).leaks
    assert judge(lambda n: (n >= 30) + (n >= 40) + (n >= 50), most=50).leaks


def test_what_has_become_slow_since_is_no_leak() -> None:
    """By far, on the whole: from one in fifteen cycles to one in seventy."""
    assert not judge(lambda n: (n >= 30) + (n >= 40) + (n >= 110), most=110).leaks
    assert judge(lambda n: (n >= 30) + (n >= 40) + (n >= 70) + (n >= 110), most=110).leaks


@pytest.mark.parametrize(
    ("per_cycle", "until", "cycles", "leaks"),
    [
        (0.6, 10**9, 180, True),  # after 110 it is fewer than 64 objects' worth: it is watched for longer
        (0.6, 105, 180, False),
        (2.0, 10**9, 90, True),
        (0.4, 10**9, 40, False),  # less than half of what was sent
    ],
)
def test_memory(per_cycle: float, until: int, cycles: int, leaks: bool) -> None:
    found = judge(lambda n: (100 + per_cycle * min(n, until)) * MIB, kind=MEMORY, most=100, payload=MIB)
    assert bool(found.leaks) is leaks
    assert all(leak.cycles == cycles for leak in found.leaks)
    if not leaks and until < 10**9:
        assert 90 < found.cycles <= cycles


def test_memory_below_a_mebibyte_is_the_allocators_own() -> None:
    for most, leaks in ((1_000, False), (1_200, True)):
        found = judge(lambda n: 100 * MIB + 1_000 * n, kind=MEMORY, most=most, payload=16)
        assert bool(found.leaks) is leaks


def test_one_round_says_nothing() -> None:
    with pytest.raises(ValueError, match="two rounds"):
        judge(lambda n: n, rounds=1)
    assert judge(lambda n: n, rounds=2).leaks
