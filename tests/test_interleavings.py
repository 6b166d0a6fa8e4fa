"""Each check of interleavings catches a race, by itself and by the line at which it happens; good transports pass."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from check_run import bench_of, run_check
from ray.experimental import TensorTransportManager

from rdt_conformance.checks import case
from reference_transports.faulty import races
from reference_transports.faulty.abort import AbortKillsNextTransfer
from reference_transports.faulty.gc import FreesByAddress
from reference_transports.faulty.lifecycle import ReadsItsOwnStore
from reference_transports.inline import InlineTransport
from reference_transports.socket_pull import SocketPullTransport
from reference_transports.tcp import TcpTransport

pytestmark = pytest.mark.timeout(120)

CALLS = "test_a_call_is_interrupted_by_another"
FIRST = "test_the_first_calls_of_an_actor_meet"
FREES = "test_describing_is_interrupted_by_a_free"
ABORTS = "test_a_transfer_is_interrupted_by_its_abort"
OBJECTS_ANYHOW = "test_objects_pass_among_actors_in_any_order"
FREES_ANYHOW = "test_frees_come_in_any_order"
EARLY = "ended early, as time was over"
ABORTS_ANYHOW = "test_aborts_come_in_any_order"
ALL = (CALLS, FIRST, FREES, ABORTS, OBJECTS_ANYHOW, FREES_ANYHOW, ABORTS_ANYHOW)


CAUGHT = [
    (CALLS, races.RemembersWhatItReceives, r"return super\(\).recv_multiple_tensors\(obj_id, self._metadata"),
    (CALLS, races.NumbersInTwoSteps, r"self._next = number \+ 1"),
    (FIRST, races.LooksThenMakes, r"self._objects = \{\}"),
    (FREES, races.CountsHoldersInTwoSteps, r"self._holders\[memory\] = holders"),
    (ABORTS, races.ForgetsAnAbortTooLate, r" of (races|socket_pull).py: "),  # there are several lines
    (ABORTS, races.AbortsWhoeverIsNext, r" of (races|socket_pull).py: "),
    (CALLS, races.HasOneLandingPlace, "return self._landed"),
    (OBJECTS_ANYHOW, ReadsItsOwnStore, ""),
    (ABORTS_ANYHOW, AbortKillsNextTransfer, ""),
    (FREES_ANYHOW, FreesByAddress, ""),
]
"""A check, a transport that it catches, and a pattern of the line at which that is."""


@pytest.mark.parametrize(("check", "transport", "line"), CAUGHT)
def test_caught(check: str, transport: type[TensorTransportManager], line: str) -> None:
    (failure,) = run_check(bench_of(transport, torch.Tensor), check).failures
    stops = [step.what for step in failure.history if step.what.startswith("… stops before")]
    assert len(stops) == (1 if line else 0)
    assert re.search(line, "".join(stops))


@pytest.mark.parametrize(
    ("check", "transport"),
    [
        *((check, transport) for check in ALL for transport in (SocketPullTransport, TcpTransport)),
        *((check, InlineTransport) for check in ALL if check not in (ABORTS, ABORTS_ANYHOW)),  # it cannot abort
    ],
)
def test_good_ones_pass(check: str, transport: type[TensorTransportManager]) -> None:
    result = run_check(bench_of(transport, torch.Tensor), check)
    assert result.outcome == "passed", result.failures


def test_what_takes_too_long_is_tried_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(InlineTransport, torch.Tensor)
    assert EARLY not in run_check(bench, CALLS).facts
    bench.alone = False
    monkeypatch.setattr(case, "_SWEEP_SECONDS", 0.0)
    bench.budget = dataclasses.replace(bench.budget, seconds=0.0)
    result = run_check(bench, CALLS)
    assert result.outcome == "passed"
    assert result.facts[EARLY] == {"rounds of interruptions": result.examples}
