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
        why="Ray keeps the request between the two calls, and uses what the wait returns as the tensors of the object.",
        fix="Return a FetchRequest, or an instance of a subclass, with the obj_id you were given. Return all tensors "
        "from wait_fetch_complete, also those that had come before.",
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
        why="The interface documents zero as: return immediately if it is not ready. Ray passes what is left of the "
        "user's time, which may be next to nothing.",
        fix="Check for completion once and raise TimeoutError if there is none. Take care that 0 is not read as no "
        "timeout, as in 'timeout or None'.",
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
        why="Ray passes the rest of the time that the user, or its own limit, allows for the whole get, in seconds, "
        "and turns a TimeoutError into its own.",
        fix="Compute one deadline from time.monotonic() and hold every wait within the call to it. Only a negative "
        "timeout means: without limit. Raise the built-in TimeoutError; milliseconds and seconds are easily mixed up.",
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
        why="The interface does not end a request with a timeout. Ray 2.60 drops it then, so this is for other callers "
        "and later versions.",
        fix="Leave the request as it is when you raise TimeoutError: do not close the connection or forget the "
        "transfer. Releasing belongs into __del__ of the request.",
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
        suffers="Every get that fails or times out costs memory or a registration for ever, or is still writing into "
        "buffers that the user has put to another use.",
        why="Ray has no call that cancels a fetch. When a get fails or times out it drops the requests, some of them "
        "never waited for, and the interface asks for clean-up in __del__.",
        fix="Give the subclass of FetchRequest a __del__ that stops the transfer, waits until nothing writes any more, "
        "and gives everything back. Nothing else may hold the request: threads hold the transfer instead.",
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
        why="A get begins its fetches one after another. If one raises, the earlier ones are dropped while their data "
        "may be on the way.",
        fix="Check all that can be checked before you touch shared state, and undo what the failed fetch did, and "
        "nothing else. Do not close a connection that other fetches use.",
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
        why="Ray begins all fetches of a get before it waits for any, so that they can overlap. The default, which "
        "receives at once, cannot.",
        fix="Start the transfer in fetch_multiple_tensors and return at once; wait in wait_fetch_complete. Do not hold "
        "a lock or a single connection for the length of a transfer. If that is not possible, do not override fetch at "
        "all.",
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
        why="Ray receives a task's argument by recv_multiple_tensors, and a get by fetch and wait. Users see one "
        "object.",
        fix="Write one of them in terms of the other: recv as a wait for a fetch, or leave fetch and wait to the base "
        "class.",
        applies=Applies.ONE_SIDED,
    ),
)
