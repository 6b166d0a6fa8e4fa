"""FAULTS between nodes: a transport need not leave its node, but must not hang or be wrong where it cannot."""

from __future__ import annotations

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.attempts import GIVEN_UP
from rdt_conformance.engines.base import Pending
from rdt_conformance.engines.reference.worker import Settings
from rdt_conformance.engines.world import Held
from rdt_conformance.history import ARRIVALS, describe_error
from rdt_conformance.payloads import Payload

EXACT = "exact"


@check("R8")
def test_a_transfer_between_nodes_is_exact_or_refused(case: Case) -> None:
    """Source and destination are never on one node here, and from three nodes on neither is on the owner's."""
    case.renew(Settings(fetch_fail_timeout=GIVEN_UP), used=True, together=False)
    case.leave_dirty()
    source, destination = case.actors(2)
    payload = case.payload(5_000, 2)
    ref = source.produce(payload)
    came = {_exact_or_refused(case, destination.consume(ref), payload)}
    if case.target.one_sided.value and came == {EXACT}:
        put = case.ok(source.put(source.build(payload, case.bench.device)), "L12")
        came |= {_exact_or_refused(case, reader.get(put), payload) for reader in (destination, case.driver)}
    case.fact("between nodes", sorted(came))


def _exact_or_refused(case: Case, receiving: Pending[Held], payload: Payload) -> str:
    error = case.error(receiving, seconds=5 * GIVEN_UP + case.patience.call, by_ray=True)
    # That Ray gave up is no refusal if the transport still waits, and may be one if not: Ray 2.60 loses some errors.
    unanswered = error is not None and any(
        step.what.startswith(ARRIVALS) and step.ended is None for step in case.world.history.steps()
    )
    case.require(
        not unanswered,
        "R8",
        f"{receiving.what} got no answer from another node, and was given up after {GIVEN_UP:g} s",
    )
    if error is not None:
        return f"refused: {describe_error(error)}"
    case.arrived(case.ok(receiving), payload)
    return EXACT
