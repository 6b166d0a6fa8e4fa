"""How a check is written, run and judged. Suites need `check` and `Case`; the rest is machinery.

A check is a function that takes a :class:`Case` and names the clauses it decides::

    @check("L1")
    def test_an_object_that_was_produced_is_consumed(case: Case) -> None:
        payload = case.draw(case.payloads())
        source, destination = case.actors(2)
        held = case.ok(destination.consume(source.produce(payload)))
        case.arrived(held, payload)
"""

from rdt_conformance.checks.case import Case
from rdt_conformance.checks.check import check, self_check, whole_check
from rdt_conformance.checks.verdicts import CheckBroken

__all__ = ["Case", "CheckBroken", "check", "self_check", "whole_check"]
