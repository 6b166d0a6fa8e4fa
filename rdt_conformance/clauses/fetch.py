"""The two halves of a get: begin a fetch, wait for it. Ray calls them for one-sided transports only."""

from __future__ import annotations

from rdt_conformance.contract_types import LOCAL, REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "F1",
        Area.FETCH,
        Level.MUST,
        sentence="fetch_multiple_tensors returns a FetchRequest for its object, and wait_fetch_complete the full list "
        "of tensors.",
        source="doc TensorTransportManager.fetch_multiple_tensors; doc TensorTransportManager.wait_fetch_complete; "
        "src rdt_manager.py _wait_fetch",
        suffers="A get fails with an error from inside Ray, or returns a value with pieces missing.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "F2",
        Area.FETCH,
        Level.MUST,
        sentence="wait_fetch_complete with a timeout of zero returns at once, with the tensors or a TimeoutError.",
        source="doc TensorTransportManager.wait_fetch_complete",
        suffers="A get whose time has run out blocks instead of reporting it.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "F3",
        Area.FETCH,
        Level.MUST,
        sentence="wait_fetch_complete waits no longer than a positive timeout, in seconds, and then raises "
        "TimeoutError.",
        source="doc TensorTransportManager.wait_fetch_complete; src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="A get with a timeout waits much longer than it was told to, or reports another error.",
        applies=Applies.OWN_FETCH,
        engines=REFERENCE,
    ),
    Clause(
        "F4",
        Area.FETCH,
        Level.SHOULD,
        sentence="wait_fetch_complete, called again after a TimeoutError, returns the tensors once they have arrived.",
        source="doc TensorTransportManager.wait_fetch_complete",
        suffers="Once a wait timed out, the data that had already been moved are lost.",
        applies=Applies.OWN_FETCH,
        engines=REFERENCE,
    ),
    Clause(
        "F5",
        Area.FETCH,
        Level.MUST,
        sentence="A FetchRequest of the transport that is dropped releases everything it held, also while its "
        "transfer runs.",
        source="doc FetchRequest; src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="Every get that fails or times out costs memory or a registration for ever.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "F6",
        Area.FETCH,
        Level.MUST,
        sentence="fetch_multiple_tensors that fails for one object does no harm to the fetches begun before.",
        source="src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="One bad reference in a list makes later gets of the good ones fail or return wrong contents.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "F7",
        Area.FETCH,
        Level.SHOULD,
        sentence="A transport that overrides fetch_multiple_tensors runs several fetches at the same time.",
        source="doc TensorTransportManager.fetch_multiple_tensors; src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="A get of several references takes as long as one get after another.",
        applies=Applies.OWN_FETCH,
        engines=LOCAL,
    ),
    Clause(
        "F8",
        Area.FETCH,
        Level.MUST,
        sentence="recv_multiple_tensors delivers the same as fetch_multiple_tensors followed by wait_fetch_complete.",
        source="doc TensorTransportManager.fetch_multiple_tensors; src rdt_store.py __ray_recv__; "
        "src rdt_manager.py _trigger_fetch",
        suffers="An object looks different as a task's argument than as the result of a get.",
        applies=Applies.ONE_SIDED,
    ),
)
