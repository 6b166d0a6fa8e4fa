"""Whether processes rest. Here the looks at them are made up; those at faulty transports are real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rdt_conformance.checks import idleness
from rdt_conformance.checks.idleness import CannotTell, Look, Restless, restless


class Seen:
    """A process that is looked at once a second; each step is what it has used, and waited for, since the look before.
    The last step goes on for ever.
    """

    name = "actor1"

    def __init__(self, *steps: tuple[float, float | None], thread: str = "spinner") -> None:
        self._looks = self._all(steps, thread)

    def _all(self, steps: tuple[tuple[float, float | None], ...], thread: str) -> Iterator[Look]:
        used, waited = 0.0, 0.0
        yield Look(0.0, {}, {}, 0.0)
        for at, (more, waiting) in enumerate([*steps, *[steps[-1]] * 20], 1):
            used, waited = used + more, waited + (waiting or 0.0)
            told = None if waiting is None else {f"7 {thread}": waited}
            yield Look(used, {f"7 {thread}": used, "8 other": 0.1}, told, float(at))

    def run(self, function: Any) -> Seen:
        return self

    def result(self) -> Look:
        return next(self._looks)


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idleness, "LOOK_SECONDS", 0.0)


def look(*processes: Seen) -> Restless | None:
    seen: Any = processes
    return restless(seen)


def test_one_look_at_processes_that_rest_is_enough() -> None:
    assert look(Seen((0.1, 0.1), (1.0, 0.0))) is None


def test_who_uses_the_processor_in_each_of_three_looks_is_restless() -> None:
    assert look(Seen((0.9, 0.0), (0.6, 0.0), (0.8, 0.0))) == Restless("actor1", "spinner", 0.6)


def test_who_cleans_up_for_a_moment_is_not() -> None:
    assert look(Seen((1.0, 0.0), (1.0, 0.0), (0.1, 0.0))) is None


def test_looks_that_do_not_follow_each_other_do_not_count_together() -> None:
    assert look(Seen((1.0, 0.0), (1.0, 0.0), (0.3, 0.6), (1.0, 0.0), (1.0, 0.0), (0.0, 0.0))) is None


def test_who_takes_all_that_others_leave_is_restless() -> None:
    assert look(Seen((0.3, 0.65), (0.4, 0.6), (0.3, 0.7))) == Restless("actor1", "spinner", 0.3)


def test_on_a_machine_that_lets_nobody_on_it_cannot_be_told() -> None:
    with pytest.raises(CannotTell):
        look(Seen((0.1, 0.9)))


def test_where_the_system_does_not_tell_who_waits_nobody_is_said_to_rest() -> None:
    with pytest.raises(CannotTell):
        look(Seen((0.1, None)))


def test_a_thread_that_has_ended_still_counts() -> None:
    """It is in what the process has used, and in no list of threads any more."""

    class Chain(Seen):
        def result(self) -> Look:
            told = super().result()
            return Look(told.used, {}, {}, told.at)

    assert look(Chain((0.9, 0.0))) == Restless("actor1", "", 0.9)
