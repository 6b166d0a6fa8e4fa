"""A full run of benchmarks ends in time, whatever a transport takes besides being measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rdt_conformance.bench.allowance import Allowance


def _run(cells: int, contests: int, besides: Callable[[int], float]) -> tuple[float, list[float]]:
    """How long all cells take together, and how long each was measured."""
    allowance = Allowance(whole=500, most=10, least=1, contests=contests)
    passed, given = 0.0, []
    for number in range(cells):
        given.append(allowance.next(passed, cells - number))
        passed += contests * given[-1] + besides(number)
    return passed, given


def test_where_there_is_time_enough_all_cells_have_the_same() -> None:
    passed, given = _run(20, 2, besides=lambda _: 1)
    assert given == [10] * 20 and passed == 420


@pytest.mark.parametrize("besides", [lambda _: 9, lambda number: 18 * (number % 2), lambda number: 4 + number / 4])
def test_where_there_is_not_it_is_over_in_time_all_the_same(besides: Callable[[int], float]) -> None:
    passed, given = _run(37, 1, besides)
    assert passed < 550
    assert min(given) >= 1


def test_nothing_is_measured_for_less_than_tells_something() -> None:
    passed, given = _run(10, 2, besides=lambda _: 100)
    assert passed > 500 and given[-5:] == [1] * 5
