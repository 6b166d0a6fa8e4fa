"""The record of what the suite can catch is of all faulty transports, as they are, and says what is promised of it."""

from __future__ import annotations

import pytest
from faulty_runs import SOAK_TARGETS, TARGETS, broken_by, needed_profile, proof_of, text_of, to_be_proven
from power import proofs

from rdt_conformance import power
from rdt_conformance.checks.check import CheckSpec
from rdt_conformance.power import PART, Tally

TALLIES = power.load()
PROOFS = proofs.load()
LEAST_CAUGHT = {"quick": 0.9, "standard": 0.99}
"""The part of the runs of a profile in which a faulty transport is caught."""


@pytest.mark.parametrize("target", sorted({*TARGETS, *SOAK_TARGETS}))
def test_every_faulty_transport_is_on_record_as_it_is(target: str) -> None:
    tallies = [tally for tally in TALLIES.values() if tally.target == target]
    again = f"make power POWER_ARGS=--only={target.partition(':')[2]}"
    assert needed_profile(target) in {tally.profile for tally in tallies}, f"not on record: {again}"
    told = {(tally.clause, tally.text) for tally in tallies}
    assert told == {(broken_by(target).id, text_of(target))}, f"it or its checks have changed: {again}"


@pytest.mark.parametrize("check", to_be_proven(), ids=lambda check: check.name)
def test_every_check_is_on_record_as_having_caught_a_transport_alone(check: CheckSpec) -> None:
    proof = PROOFS.get(check.name)
    again = f"python -m tests.power.proofs --only={check.name}"
    assert proof is not None, f"it has caught nothing yet, or that is not on record: {again}"
    assert proof["target"] in TARGETS and broken_by(proof["target"]).id in check.clauses
    assert proof["text"] == proof_of(check, proof["target"]), f"it or the transport has changed: {again}"


def test_a_soak_of_a_minute_mostly_catches_what_is_rare() -> None:
    """What takes a certain death and then some dozens of objects takes more than a minute now and then."""
    tallies = [tally for tally in TALLIES.values() if tally.target in SOAK_TARGETS]
    assert tallies and all(sum(tally.hits) > len(tally.hits) / 2 for tally in tallies)


@pytest.mark.parametrize("profile", sorted(LEAST_CAUGHT))
def test_what_is_wrong_is_caught(profile: str) -> None:
    missed = {
        tally.target: f"{sum(tally.hits)} of {len(tally.hits)}"
        for tally in _of(profile)
        if tally.clause and sum(tally.hits) < LEAST_CAUGHT[profile] * len(tally.hits)
    }
    assert not missed


@pytest.mark.parametrize("profile", [*sorted(LEAST_CAUGHT), PART])
def test_what_is_right_is_not_slandered(profile: str) -> None:
    good = [tally for tally in _of(profile) if not tally.clause]
    assert good and not any(any(tally.hits) for tally in good)


def _of(profile: str) -> list[Tally]:
    return [tally for tally in TALLIES.values() if tally.profile == profile and tally.hits]
