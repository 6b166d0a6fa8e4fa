"""A full run of benchmarks ends in time, whatever a transport takes besides being measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rdt_conformance.bench.allowance import Allowance


def _run(
    cells: int, besides: Callable[[int], float], measurements: int = 1, of_each: Callable[[int], int] | None = None
) -> tuple[float, list[float]]:
    """How long all cells take together, and how long each was measured."""
    allowance = Allowance(whole=500, most=10, least=1, measurements=measurements)
    passed, measured, given = 0.0, 0.0, []
    for number in range(cells):
        given.append(allowance.next(passed, measured, cells - number))
        measuring = (of_each(number) if of_each else measurements) * given[-1]
        measured += measuring
        passed += measuring + besides(number)
    return passed, given


@pytest.mark.parametrize("besides", [lambda _: 1, lambda number: 15 * (number == 0)])
def test_where_there_is_time_enough_all_cells_have_the_same(besides: Callable[[int], float]) -> None:
    """The first one also starts the processes, which says nothing of the others."""
    _, given = _run(20, besides, measurements=2)
    assert given == [10] * 20


@pytest.mark.parametrize("besides", [lambda _: 9, lambda number: 18 * (number % 2), lambda number: 4 + number / 4])
def test_where_there_is_not_it_is_over_in_time_all_the_same(besides: Callable[[int], float]) -> None:
    passed, given = _run(37, besides)
    assert passed < 550
    assert min(given) >= 1


def test_what_is_not_measured_is_not_taken_for_measured() -> None:
    passed, _ = _run(37, lambda _: 9, of_each=lambda number: number > 15)
    assert passed < 520


def test_cells_that_are_measured_again_and_again_are_reckoned_with() -> None:
    passed, _ = _run(37, lambda _: 1, of_each=lambda number: 4 if number % 3 else 1)
    assert passed < 520


def test_nothing_is_measured_for_less_than_tells_something() -> None:
    passed, given = _run(10, lambda _: 100, measurements=2)
    assert passed > 500 and given[-5:] == [1] * 5
