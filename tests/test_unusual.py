"""What keeps the contract in a rare way passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import unusual
from check_run import bench_of, run_check
from suite_run import run_suite_forked


def test_it_passes_everything(tmp_path: Path) -> None:
    target = f"{unusual.__file__}:{unusual.NeverPassesOn.__name__}"
    run = run_suite_forked(tmp_path, target, "--rdt-engine=local", "--rdt-profile=quick")
    assert run.status == 0, run.printed


@pytest.mark.parametrize("driver_refusal", ["", "no GPU"])
def test_communicators_without_actors_are_tried_between_processes(driver_refusal: str) -> None:
    bench = bench_of(unusual.NeverToItself, torch.Tensor)
    bench.carries = replace(bench.carries, driver_refusal=driver_refusal)
    result = run_check(bench, "test_communicator_metadata_without_actors")
    assert result.outcome == "passed", result.failures


@pytest.mark.parametrize(
    ("transport", "check"),
    [
        (unusual.RemembersLivingTensors, "test_one_free_undoes_two_extracts"),
        (unusual.RefusesSomeBuffersLate, "test_nothing_is_written_for_a_dropped_request"),
        (unusual.RefusesSomeBuffersLate, "test_freed_objects_leave_nothing"),
        (unusual.ReceivesIntoAnArena, "test_wait_with_a_timeout_of_zero_returns_at_once"),
        (unusual.CleansUpAtExit, "test_freed_objects_leave_nothing"),
        (unusual.ReceivesIntoSmallArenas, "test_freed_objects_leave_nothing"),
        (unusual.ReceivesIntoAnArena, "test_earlier_tensors_stay_as_they_are_when_later_ones_arrive"),
    ],
)
def test_a_habit_of_its_own_breaks_nothing(transport: type, check: str) -> None:
    result = run_check(bench_of(transport, torch.Tensor), check)
    assert result.outcome == "passed", result.failures
