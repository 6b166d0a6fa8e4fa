"""A soak: what grows is told from what only goes up and down, it ends in time, and its series lie in the report.

That it catches what is wrong too rarely for anything else takes minutes: see `test_power` for the record of that.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from suite_run import run_suite

from rdt_conformance.observe.drift import FEWEST_STEPS, Level, drift
from rdt_conformance.observe.resources import MEMORY, REGISTRATIONS
from rdt_conformance.results import CheckResult, Series


def levels(kind: str, counts: list[int], *, deaths: int = 0, sent: int = 0) -> list[Level]:
    """Counts of one kind, with a hundred objects, and so many deaths and bytes, between each and the next.

    As many were there before the first count as come within three.
    """
    names = {kind: tuple(f"number {n}" for n in range(5))}
    return [Level(float(n), 100 * n, sent * n, deaths * n, {kind: count}, names) for n, count in enumerate(counts, 3)]


@pytest.mark.parametrize(
    ("kind", "counts", "options", "leaks"),
    [
        ("memfds", [4, 5, 5, 6, 7, 7, 8, 9, 10], {}, True),
        ("memfds", [4, 12, 12, 12, 12, 12, 12, 12, 12], {}, False),  # a pool that has filled
        ("memfds", [4, 9, 13, 15, 16, 16, 16, 16, 16], {}, False),  # one that fills more slowly
        ("memfds", [4, 9, 3, 8, 5, 9, 4, 8, 6], {}, False),
        ("memfds", [4, 4, 4, 4, 5, 4, 4, 5, 5], {}, False),
        ("sockets", [20, 22, 24, 26, 28, 30, 32, 34, 36], {"deaths": 1}, False),  # Ray's own, of the dead
        ("sockets", [20, 26, 32, 38, 44, 50, 56, 62, 68], {"deaths": 1}, True),
        (f"{REGISTRATIONS} in X._known", [0, 50, 100, 150, 200, 250, 300, 350, 400], {}, False),  # maybe a cache
        (f"{REGISTRATIONS} in X._known", [0, 200, 400, 600, 800, 1_000, 1_200, 1_400, 1_600], {}, True),
        (MEMORY, [n * 10 << 20 for n in range(9)], {"sent": 100 << 20}, False),
        (MEMORY, [n * 60 << 20 for n in range(9)], {"sent": 100 << 20}, True),
        # On either side of each line that is drawn:
        (MEMORY, [n * 49 << 20 for n in range(9)], {"sent": 100 << 20}, False),
        (MEMORY, [n * 51 << 20 for n in range(9)], {"sent": 100 << 20}, True),
        (MEMORY, [n << 17 for n in range(9)], {}, True),
        (MEMORY, [(n << 17) - n for n in range(9)], {}, False),
        (f"{REGISTRATIONS} in X._known", [0, 125, 250, 375, 500, 625, 750, 875, 999], {}, False),
        (f"{REGISTRATIONS} in X._known", [0, 125, 250, 375, 500, 625, 750, 875, 1_000], {}, True),
        ("sockets", [20, 23, 26, 29, 32, 36, 40, 43, 46], {"deaths": 1}, False),
        ("sockets", [20, 23, 26, 29, 32, 36, 40, 43, 47], {"deaths": 1}, True),
        ("memfds", [4, 4, 4, 5, 5, 5, 6, 6, 6, 7], {}, True),
        ("memfds", [0, 3, 6, 8, 11, 14, 16, 17, 18, 20], {}, True),  # in the last third a quarter of what was before
        ("memfds", [0, 3, 6, 8, 11, 14, 16, 17, 18, 19], {}, False),
        ("memfds", [0, 4, 8, 11, 15, 18, 21, 23, 24, 26], {}, False),  # less than a quarter, and more than a fifth
        ("memfds", [0, 3, 6, 8, 8, 8, 8, 11, 14, 16], {}, False),  # nothing in the second third
        ("memfds", [4, 6, 8, 10, 9, 8, 8, 11, 15, 19], {}, False),  # less than nothing
        ("sockets", [20, 23, 26, 30, 33, 36, 40, 43, 46, 49], {"deaths": 1}, False),
        ("sockets", [20, 23, 26, 30, 33, 36, 40, 43, 46, 50], {"deaths": 1}, True),
        ("memfds", [0, 0, 0, 0, 3, 6, 8, 11, 14, 16], {}, False),  # nothing in the first
    ],
)
def test_what_leaks(kind: str, counts: list[int], options: dict[str, int], leaks: bool) -> None:
    found = drift(levels(kind, counts, **options))
    assert [leak.kind for leak in found] == ([kind] if leaks else [])


def test_a_leak_is_told_in_objects() -> None:
    (leak,) = drift(levels("memfds", [4, 6, 8, 10, 12, 14, 16, 18, 20]))
    grew = "open memory files grew from 4 to 20 over 800 cycles (one in every 50 cycles)"
    assert leak.sentence == f"{grew}, e.g. number 2, number 3, number 4"


def test_what_was_not_there_at_first_is_counted_from_nothing() -> None:
    counted = levels("memfds", [0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    counted[0].figures.clear()
    (leak,) = drift(counted)
    assert (leak.before, leak.after) == (0, 3)
    assert leak.per_cycle == 3 / leak.cycles


def test_of_few_counts_nothing_is_told() -> None:
    with pytest.raises(ValueError, match="too few counts"):
        drift(levels("memfds", list(range(FEWEST_STEPS))))
    with pytest.raises(ValueError, match="too few counts"):
        drift(levels("memfds", [1, 2]))
    assert drift(levels("memfds", list(range(FEWEST_STEPS + 1))))


def test_series_travel() -> None:
    result = CheckResult("t", "ray", ("G1",), "passed", series=(Series("actor1", "threads", ((0.5, 3), (1.0, 4))),))
    assert CheckResult.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--rdt-minutes=1"], "--rdt-minutes: it is for a soak alone; add --rdt-profile=soak"),
        (["--rdt-profile=soak", "--rdt-minutes=0"], "--rdt-minutes: '0' is not a number above 0"),
        (["--rdt-profile=soak", "--rdt-minutes=soon"], "--rdt-minutes: 'soon' is not a number above 0"),
        (["--rdt-profile=soak", "--rdt-engine=local"], "a soak works on the ray engine alone"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_line(options: list[str], told: str, tmp_path: Path) -> None:
    run = run_suite(tmp_path, "inline", *options)
    assert run.status == 4, run.printed
    assert told in run.printed and "Traceback" not in run.printed


@pytest.mark.parametrize("actors", [4, 2])
def test_a_short_soak(actors: int, tmp_path: Path) -> None:
    """Two are what there is where each takes a GPU of two: nobody is past whom something could be sent then."""
    (tmp_path / "so_many.py").write_text(f"from rdt_conformance.checks import soak\nsoak.ACTORS = {actors}\n")
    began = time.monotonic()
    run = run_suite(tmp_path, "inline", "-p", "so_many", "--rdt-profile=soak", "--rdt-minutes=0.1", "--rdt-seed=1")
    assert run.status == 8, run.printed
    assert time.monotonic() - began < 100
    assert "profile soak for 0.1 min," in run.printed
    assert {"L1", "O1", "R2"} <= run.passed() and not run.broken()
    (check,) = run.report["checks"]
    assert check["name"] == "test_long_work_with_deaths"
    assert "steps" in check["facts"]["soak"] and " 0 actors killed" not in check["facts"]["soak"]
    assert {f"actor{number}" for number in range(1, actors + 1)} == {
        series["process"] for series in check["series"] if series["process"].startswith("actor")
    }
    kinds = {series["kind"] for series in check["series"] if series["process"] == "actor1"}
    assert {"sockets", "threads", "uss bytes"} <= kinds
    assert all(at >= 0 and figure >= 0 for series in check["series"] for at, figure in series["points"])


def test_a_process_that_ends_by_itself_is_told_whatever_fails_for_it(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(
        """
import time
from rdt_conformance.checks import soak

step = soak.Program.step

def kill_one(self):
    step(self)
    if self.made > 5:
        self._case.world.host._remotes["actor2"].process.kill()
        while "actor2" not in self._case.world.died():
            time.sleep(0.01)
        raise NotImplementedError("what Ray says of an object that it no longer knows")

soak.Program.step = kill_one
"""
    )
    run = run_suite(tmp_path, "inline", "-p", "ends", "--rdt-profile=soak", "--rdt-minutes=0.1", "--rdt-seed=1")
    assert run.status == 1, run.printed
    assert run.broken() == {"L1"}
    assert "the process of actor2 ended, and nobody had ended it" in run.printed
    assert "harness error" not in run.printed
