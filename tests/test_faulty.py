"""Every faulty transport is caught, by the check of the clause that it is named for, and the run ends by itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from suite_run import run_suite_forked

import reference_transports.faulty
from rdt_conformance.contract import Area, Level, clause
from rdt_conformance.coverage import checks_by_clause
from reference_transports.faulty import FAULTY
from reference_transports.faulty.processes import FILES

for module in pkgutil.iter_modules(reference_transports.faulty.__path__):
    importlib.import_module(f"{reference_transports.faulty.__name__}.{module.name}")

TARGETS = {f"{transport.__module__}:{transport.__name__}": broken for transport, broken in FAULTY.items()}

COVERING = checks_by_clause()


def test_the_faults_are_spread_over_all_areas() -> None:
    assert len(FAULTY) >= 30
    assert {clause(broken).area for broken in FAULTY.values()} >= set(Area)


@pytest.fixture
def no_files_stay() -> Iterator[None]:
    """What is caught leaving files behind shall not do it for good."""
    before = set(Path("/dev/shm").glob(f"{FILES}*"))
    yield
    for left in set(Path("/dev/shm").glob(f"{FILES}*")) - before:
        left.unlink(missing_ok=True)


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.usefixtures("no_files_stay")
def test_caught(target: str, tmp_path: Path) -> None:
    broken = clause(TARGETS[target])
    names = " or ".join(COVERING[broken.id])
    engine = next(engine for engine in ("local", "cluster", "ray") if engine in broken.engines)
    options = ("--rdt-profile=quick", "--rdt-seed=1", f"--rdt-engine={engine}", "-k", names)
    run = run_suite_forked(tmp_path, target, *options, seconds=120 if engine == "local" else 300)
    assert broken.id in run.broken(), run.printed
    if broken.level is Level.MUST:
        assert run.status == 1, run.printed
