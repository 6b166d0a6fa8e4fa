"""Many at once: threads in one transport, instances in one process, objects under way."""

from __future__ import annotations

from rdt_conformance.contract_types import Area, Clause, Level

CLAUSES = (
    Clause(
        "X1",
        Area.CONCURRENCY,
        Level.MUST,
        sentence="The transport works without error or corruption while task code, transfers, frees and aborts call "
        "it from different threads at once.",
        source="src rdt_store.py RDTStore; src actor.py _ray_system_error",
        suffers="A busy actor now and then fails in a way that nobody can reproduce.",
    ),
    Clause(
        "X2",
        Area.CONCURRENCY,
        Level.SHOULD,
        sentence="Two instances of the transport in one process work independently of each other.",
        source="src util.py get_tensor_transport_manager",
        suffers="The transport cannot be registered under two names or be tested without a cluster.",
        engines=frozenset({"local"}),
    ),
    Clause(
        "X3",
        Area.CONCURRENCY,
        Level.MUST,
        sentence="The transport stays exact with many receivers and many objects under way at the same time.",
        source="doc TensorTransportManager.recv_multiple_tensors; src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="Contents are right in every test and wrong under load.",
    ),
)
