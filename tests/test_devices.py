"""What checks do with types of device and numbers of GPUs, as far as that can be seen without a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from check_run import bench_of, run_check

from rdt_conformance.checks.bench import Bench
from rdt_conformance.checks.carries import Carries
from rdt_conformance.contract import CLAUSES, Applies
from rdt_conformance.engines.base import Spread
from rdt_conformance.engines.engines import Engines
from rdt_conformance.target import Fact
from reference_transports.inline import InlineTransport

REFUSAL = "recv_multiple_tensors on actor2 (_ray_system) raised ValueError: duplicate GPU"


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = bench_of(InlineTransport, torch.Tensor)
    yield made
    made.close()


def test_a_transport_of_several_types_of_device_is_tried_with_each(bench: Bench) -> None:
    target = dataclasses.replace(bench.target, devices=Fact(("cpu", "cpu"), "test"))
    both = Bench(target, "local", Engines().start, "quick", seed=1)
    check = "test_every_view_arrives_or_is_refused"
    assert (run_check(bench, check).examples, run_check(both, check).examples) == (1, 2)
    both.close()


@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        ("test_a_produced_object_is_consumed", "passed"),
        ("test_one_object_reaches_many_receivers", "passed"),  # the source has one to itself
        ("test_any_sequence_of_steps", "passed"),  # with two actors
        ("test_two_instances_in_one_process_are_independent", "not run"),
    ],
)
def test_what_takes_a_gpu_for_each_actor_is_spared_what_takes_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, check: str, outcome: str
) -> None:
    monkeypatch.setattr(type(bench._engine), "gpus", 2)
    bench.__dict__["carries"] = Carries(spread=Spread.NODES, apart_only=REFUSAL)
    result = run_check(bench, check)
    assert result.outcome == outcome, result.reason
    if outcome == "not run":
        assert result.reason == f"needs 3 GPUs, and there are 2 (it does not carry within one: {REFUSAL})"


def test_clauses_of_gpu_memory_are_for_those_that_carry_it(bench: Bench) -> None:
    of_gpus = {entry.id for entry in CLAUSES.values() if entry.applies in (Applies.CUDA, Applies.CUDA_TARGET_BUFFERS)}
    assert of_gpus == {"B5", "B7", "D9", "R9"}
    with_gpu = dataclasses.replace(bench.target, devices=Fact(("cpu", "cuda"), "test"))
    for clause in of_gpus:
        assert with_gpu.applies(CLAUSES[clause]) and not bench.target.applies(CLAUSES[clause])
