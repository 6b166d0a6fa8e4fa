"""How a failure is told: in steps that a person would take, and beside an example that went well."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch
from check_run import bench_of, run_check

from rdt_conformance.report.story import render
from rdt_conformance.report.twins import differences
from rdt_conformance.results import Failure, Step, Twin
from reference_transports.inline import InlineTransport


def _step(number: int, what: str, outcome: str = "ok") -> Step:
    return Step(number, number / 1000, "actor1", "main", what, "obj1", number / 1000 + 0.0005, outcome)


HISTORY = (_step(1, "extract_tensor_transport_metadata()"), _step(2, "wait_fetch_complete()", "1 tensor"))
FAILURE = Failure("O1", "nothing arrived", example=("tensors = 2", "bytes = 3"), history=HISTORY)


def _told(example: tuple[str, ...], *history: Step) -> list[str]:
    return list(differences(replace(FAILURE, twin=Twin(example, history))))


def test_without_a_twin_there_is_nothing_to_tell() -> None:
    assert not list(differences(FAILURE))
    assert "went well" not in render(FAILURE)


def test_what_was_chosen_otherwise_and_where_the_calls_part() -> None:
    raised = replace(HISTORY[1], outcome="raised ValueError: no")
    assert _told(("tensors = 1", "bytes = 3"), HISTORY[0], raised) == [
        "instead of: tensors = 2",
        "it had:     tensors = 1",
        "step 2 was:  actor1  wait() obj1  -> raised ValueError: no",
    ]
    assert _told(FAILURE.example, HISTORY[0])[-1] == "step 2 was:  not there"
    assert _told(FAILURE.example, *HISTORY) == []


def test_many_differences_are_not_all_told() -> None:
    told = _told(tuple(f"choice = {number}" for number in range(9)), *HISTORY)
    assert told[-1] == "it had:     … and 4 more"


class Zeroes(InlineTransport):
    """Brings nothing but zeroes."""

    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        return [torch.zeros_like(tensor) for tensor in super().recv_multiple_tensors(*args)]


def test_sequences_are_told_in_numbered_steps_with_the_names_of_the_history() -> None:
    (failure,) = run_check(bench_of(Zeroes, torch.Tensor), "test_any_sequence_of_steps").failures
    assert [line.partition(". ")[0] for line in failure.example] == [str(at + 1) for at in range(len(failure.example))]
    assert failure.example[0] == "1. actor1 returns 1 tensor of 64 bytes, as obj1"
    told = set(re.findall(r"obj\d+", " ".join(failure.example)))
    assert told == {step.obj_id for step in failure.history if step.obj_id}
