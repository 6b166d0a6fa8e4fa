"""Every faulty transport is caught, by the check of the clause that it is named for, and each run ends by itself.

Some need processes of their own, or took seconds when they went on record. Of these, every ninth is tried here,
another ninth with each change, besides those whose text or whose checks have changed since ``reports/power.json`` was
made. That record is of runs of all of them, and `test_power` demands that it is up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_runs import (
    TARGETS,
    broken_by,
    engine_of,
    left_files,
    needed_profile,
    remove_left_files,
    run_checks,
    share,
    text_of,
)

from rdt_conformance import power
from rdt_conformance.contract import Area, Level, clause
from rdt_conformance.engines.ray_session import RaySession
from reference_transports.faulty import FAULTY, RIGHT_IN_ONE_PROCESS
from reference_transports.faulty.abort import DeafToAborts

LONG = 4.0
"""Seconds of a run, its start included: most take two."""
ON_RECORD = {
    tally.target: tally.summary["seconds"]
    for tally in power.load().values()
    if tally.clause and tally.profile == needed_profile(tally.target) and tally.text == text_of(tally.target)
}
TAKES_LONG = sorted(t for t in {*TARGETS} & {*ON_RECORD} if engine_of(t) != "local" or ON_RECORD[t] > LONG)
TRIED = sorted({*TARGETS} - {*TAKES_LONG} | {*share(TAKES_LONG, of=9)})

SEEDS = (1, 2, 3)
"""A run of these profiles is to catch nine out of ten, and the record says which it catches how often; here it is seen
that each is caught at all, which one of three runs that try other things has to show."""


def test_the_faults_are_spread_over_all_areas() -> None:
    assert len(FAULTY) >= 30
    assert {clause(broken).area for broken in FAULTY.values()} >= set(Area)


@pytest.fixture(scope="session")
def ray() -> Iterator[RaySession]:
    """One for all runs that need it: to start it takes longer than most of them."""
    with RaySession(nodes=2, seconds=180) as session:
        yield session


@pytest.fixture
def no_files_stay() -> Iterator[None]:
    """What is caught leaving files behind shall not do it for good."""
    before = left_files()
    yield
    remove_left_files(besides=before)


@pytest.mark.parametrize("target", TRIED)
@pytest.mark.usefixtures("no_files_stay")
def test_caught(target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    broken, engine = broken_by(target), engine_of(target)
    joined = None if engine == "local" else request.getfixturevalue("ray").address
    run = None
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        run = run_checks(target, engine, folder, needed_profile(target), seed, address=joined)
        if broken.id in run.broken():
            break
    assert run is not None and broken.id in run.broken(), run and run.printed
    if broken.level is Level.MUST:
        assert run.status == 1, run.printed


@pytest.mark.parametrize("target", sorted(name for name in TARGETS if TARGETS[name] in RIGHT_IN_ONE_PROCESS))
@pytest.mark.usefixtures("no_files_stay")
def test_right_in_one_process(target: str, tmp_path: Path) -> None:
    run = run_checks(target, "local", tmp_path, needed_profile(target))
    assert not run.broken(), run.printed
    # What it receives waits for nobody there, so that an abort has nothing to end.
    shows = TARGETS[target] is not DeafToAborts
    assert (broken_by(target).id in run.passed()) is shows, run.printed
