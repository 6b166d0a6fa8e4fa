"""What keeps the contract in a rare way passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import unusual
from check_run import bench_of, run_check
from suite_run import run_suite_forked

from rdt_conformance.history import KEPT, History


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


@pytest.mark.parametrize(
    ("transport", "check"),
    [
        (unusual.GivesNoRoomBack, "test_a_produced_object_is_consumed"),
        (unusual.DescribesOnce, "test_extract_again_gives_the_same"),
    ],
)
def test_want_of_room_is_no_excuse_where_nothing_else_takes_it(transport: type, check: str) -> None:
    result = run_check(bench_of(transport, torch.Tensor), check)
    assert result.outcome == "broken" and "MemoryError" in result.failures[0].happened, result


def test_who_shares_others_is_known_past_the_end_of_a_history_and_a_death() -> None:
    history = History()

    def call(what: str, obj_id: str, outcome: str = "") -> None:
        event = history.begin("actor1", "main", what, obj_id, 0.0)
        event.outcome = outcome
        history.end(event, 0.0, failed=bool(outcome))

    def is_excused() -> bool:
        call("extract_tensor_transport_metadata", "new", "raised MemoryError: full")
        excused = history.always_refused_beside_others("actor1")
        history.clear()
        return excused

    assert not is_excused()
    call("extract_tensor_transport_metadata", "old")
    for _ in range(KEPT):
        call("recv_multiple_tensors", "another")
    assert is_excused() and is_excused()
    history.note_new("actor1")
    assert not is_excused()
    call("extract_tensor_transport_metadata", "old")
    history.note_new("actor1")
    assert not is_excused()
    call("extract_tensor_transport_metadata", "old")
    call("garbage_collect", "old")
    assert not is_excused()


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
