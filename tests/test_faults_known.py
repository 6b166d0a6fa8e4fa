"""What the report says that the suite catches is what the tests of the suite demand."""

from __future__ import annotations

from rdt_conformance.contract import CLAUSES
from rdt_conformance.faults_known import known
from reference_transports.faulty import every_faulty

FAULTY = every_faulty()


def test_the_sources_tell_what_the_classes_are() -> None:
    told = {fault.name: (fault.clause, fault.mistake) for fault in known()[0]}
    docs = {kind: " ".join((kind.__doc__ or "").partition("\n\n")[0].split()) for kind in FAULTY}
    assert told == {kind.__name__: (clause, docs[kind]) for kind, clause in FAULTY.items()}


def test_each_is_told_once_and_breaks_a_clause_that_there_is() -> None:
    faults, _ = known()
    assert len(faults) == len({fault.name for fault in faults}) == len(FAULTY)
    assert all(fault.clause in CLAUSES and fault.mistake for fault in faults)
