"""Every transport that is wrong with GPU memory is caught by name, and the good one that they are made of is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from suite_run import SuiteRun, run_suite_forked

from rdt_conformance.contract import clause
from rdt_conformance.coverage import checks_by_clause
from rdt_conformance.engines.ray_session import RaySession
from reference_transports.faulty import FAULTY, NEEDS_CUDA, RIGHT_IN_ONE_PROCESS, gpus

TARGETS = {f"{transport.__module__}:{transport.__name__}": transport for transport in NEEDS_CUDA}
GOOD = f"{gpus.__name__}:{gpus.ThroughHost.__name__}"
COVERING = checks_by_clause()


@pytest.fixture(scope="module")
def ray() -> Iterator[RaySession]:
    with RaySession(seconds=180) as session:
        yield session


def run(folder: Path, target: str, engine: str, clauses: set[str], ray: RaySession) -> SuiteRun:
    names = " or ".join(name for clause_id in sorted(clauses) for name in COVERING[clause_id])
    options = ["--rdt-devices=cuda", "--rdt-profile=quick", "--rdt-seed=1", f"--rdt-engine={engine}", "-k", names]
    if engine == "local":
        return run_suite_forked(folder, target, *options, small=False)
    options.append(f"--rdt-address={ray.address}")
    return run_suite_forked(folder, target, *options, token=os.environ["RAY_AUTH_TOKEN_PATH"], seconds=300, small=False)


@pytest.mark.parametrize("engine", ["local", "cluster", "ray"])
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_caught(target: str, engine: str, tmp_path: Path, ray: RaySession) -> None:
    broken = clause(FAULTY[TARGETS[target]])
    if engine not in broken.engines or (engine == "local" and TARGETS[target] in RIGHT_IN_ONE_PROCESS):
        pytest.skip(f"{broken.id} is not tried on the {engine} engine")
    if broken.id == "R9" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    caught = run(tmp_path, target, engine, {broken.id}, ray)
    assert broken.id in caught.broken() and caught.status == 1, caught.printed


@pytest.mark.parametrize("engine", ["local", "cluster", "ray"])
def test_the_good_one_is_not(engine: str, tmp_path: Path, ray: RaySession) -> None:
    clauses = {FAULTY[transport] for transport in NEEDS_CUDA}
    good = run(tmp_path, GOOD, engine, clauses, ray)
    assert not good.broken(), good.printed
    assert {each for each in clauses if engine in clause(each).engines} <= good.passed(), good.printed
