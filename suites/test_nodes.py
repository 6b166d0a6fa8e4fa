"""FAULTS between nodes: a transport need not leave its node, but must not hang or be wrong where it cannot."""

from __future__ import annotations

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.attempts import GIVEN_UP
from rdt_conformance.checks.refusals import EXACT, exact_or_refused
from rdt_conformance.engines.base import Spread
from rdt_conformance.engines.reference.worker import Settings

WHERE = "from another node"


@check("R8")
def test_a_transfer_between_nodes_is_exact_or_refused(case: Case) -> None:
    """Source and destination are never on one node here, and from three nodes on neither is on the owner's."""
    case.renew(Settings(fetch_fail_timeout=GIVEN_UP), used=True, spread=Spread.NODES)
    case.leave_dirty()
    source, destination = case.actors(2)
    payload = case.payload(5_000, 2)
    ref = source.produce(payload)
    came = {exact_or_refused(case, destination.consume(ref), payload, "R8", WHERE, GIVEN_UP)}
    if case.target.one_sided.value and came == {EXACT}:
        put = case.ok(source.put(source.build(payload)), "L12")
        came |= {
            exact_or_refused(case, reader.get(put), payload, "R8", WHERE, GIVEN_UP)
            for reader in ([destination, case.driver] if case.driver_takes_part else [destination])
        }
    case.fact("between nodes", sorted(came))
