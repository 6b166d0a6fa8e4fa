"""Every faulty transport is caught, by the check of the clause that it is named for, and the run ends by itself."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from suite_run import SuiteRun, run_suite_forked

import reference_transports.faulty
from rdt_conformance.contract import Applies, Area, Clause, Level, clause
from rdt_conformance.coverage import checks_by_clause
from rdt_conformance.engines.ray_session import RaySession
from reference_transports.faulty import FAULTY, FILES, NEEDS_CUDA, RIGHT_IN_ONE_PROCESS

for module in pkgutil.iter_modules(reference_transports.faulty.__path__):
    importlib.import_module(f"{reference_transports.faulty.__name__}.{module.name}")

TARGETS = {
    f"{transport.__module__}:{transport.__name__}": transport for transport in FAULTY if transport not in NEEDS_CUDA
}

COVERING = checks_by_clause()


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
    before = set(Path("/dev/shm").glob(f"{FILES}*"))
    yield
    for left in set(Path("/dev/shm").glob(f"{FILES}*")) - before:
        left.unlink(missing_ok=True)


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.usefixtures("no_files_stay")
def test_caught(target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    broken = clause(FAULTY[TARGETS[target]])
    possible = broken.engines - ({"local"} if TARGETS[target] in RIGHT_IN_ONE_PROCESS else set())
    engine = next(engine for engine in ("local", "cluster", "ray") if engine in possible)
    joined = None if engine == "local" else request.getfixturevalue("ray").address
    run = _run_checks(broken, target, engine, tmp_path, joined)
    assert broken.id in run.broken(), run.printed
    if broken.level is Level.MUST:
        assert run.status == 1, run.printed


@pytest.mark.parametrize("target", sorted(name for name in TARGETS if TARGETS[name] in RIGHT_IN_ONE_PROCESS))
@pytest.mark.usefixtures("no_files_stay")
def test_right_in_one_process(target: str, tmp_path: Path) -> None:
    broken = clause(FAULTY[TARGETS[target]])
    run = _run_checks(broken, target, "local", tmp_path)
    assert broken.id in run.passed() and not run.broken(), run.printed


def _run_checks(broken: Clause, target: str, engine: str, folder: Path, address: str | None = None) -> SuiteRun:
    """Run the checks of one clause; where each of them takes seconds, until one catches something."""
    names = " or ".join(COVERING[broken.id])
    # Whether threads get in each other's way is a matter of tries.
    profile = "standard" if broken.area is Area.CONCURRENCY else "quick"
    options = [f"--rdt-profile={profile}", "--rdt-seed=1", f"--rdt-engine={engine}", "-k", names]
    if address is None:
        return run_suite_forked(folder, target, *options, small=False)
    nodes = 2 if broken.applies is Applies.SEVERAL_NODES else 1
    options += [f"--rdt-address={address}", f"--rdt-nodes={nodes}", "-x"]
    return run_suite_forked(folder, target, *options, token=os.environ["RAY_AUTH_TOKEN_PATH"], seconds=300, small=False)
