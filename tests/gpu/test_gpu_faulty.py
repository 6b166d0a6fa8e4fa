"""Every transport that is wrong with GPU memory is caught by name, and the good one that they are made of is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from faulty_runs import CHECKS, GPU_TARGETS, broken_by, engines_of, run_checks
from suite_run import run_suite_forked

from rdt_conformance.contract import Level, clause
from rdt_conformance.engines.ray_session import RaySession
from reference_transports.faulty import gpus

GOOD = f"{gpus.__name__}:{gpus.ThroughHost.__name__}"


@pytest.fixture(scope="module")
def ray() -> Iterator[RaySession]:
    with RaySession(seconds=180) as session:
        yield session


@pytest.mark.parametrize(
    ("target", "engine"), [(target, engine) for target in sorted(GPU_TARGETS) for engine in engines_of(target)]
)
def test_caught(target: str, engine: str, tmp_path: Path, ray: RaySession) -> None:
    broken = broken_by(target)
    if broken.id == "R9" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    caught = run_checks(target, engine, tmp_path, "quick", address=None if engine == "local" else ray.address)
    assert broken.id in caught.broken(), caught.printed
    if broken.level is Level.MUST:
        assert caught.status == 1, caught.printed


@pytest.mark.parametrize("engine", ["local", "cluster", "ray"])
def test_the_good_one_is_not(engine: str, tmp_path: Path, ray: RaySession) -> None:
    clauses = {broken_by(target).id for target in GPU_TARGETS}
    names = " or ".join(check.name for check in CHECKS if clauses & {*check.clauses})
    options = ["--rdt-devices=cuda", "--rdt-profile=quick", "--rdt-seed=1", f"--rdt-engine={engine}", "-k", names]
    token = None
    if engine != "local":
        options.append(f"--rdt-address={ray.address}")
        token = os.environ["RAY_AUTH_TOKEN_PATH"]
    good = run_suite_forked(tmp_path, GOOD, *options, token=token, seconds=300, small=False)
    assert not good.broken(), good.printed
    assert {each for each in clauses if engine in clause(each).engines} <= good.passed(), good.printed
