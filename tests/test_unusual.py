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


def test_a_source_without_room_for_one_more_breaks_nothing() -> None:
    bench = bench_of(unusual.HasLittleRoom, torch.Tensor)
    result = run_check(bench, "test_a_produced_object_is_consumed")
    assert result.outcome == "passed" and result.examples > 1, result
    result = run_check(bench, "test_freeing_another_object_between_fetch_and_wait")
    assert result.outcome == "not run" and result.reason.endswith("MemoryError: there is room for 1 object only"), (
        result
    )


def test_a_source_that_never_has_room_again_is_broken() -> None:
    result = run_check(bench_of(unusual.GivesNoRoomBack, torch.Tensor), "test_a_produced_object_is_consumed")
    assert result.outcome == "broken" and "MemoryError" in result.failures[0].happened, result


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
