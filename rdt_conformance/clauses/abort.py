"""Ending a transfer that cannot succeed any more."""

from __future__ import annotations

from rdt_conformance.contract_types import REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "A1",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport makes a blocked recv_multiple_tensors or wait_fetch_complete end with an error "
        "within five seconds.",
        source="doc TensorTransportManager.can_abort_transport; src rdt_manager.py _abort_transport; ray#56783",
        suffers="After one failed transfer the receiver gets nothing more, because its only receiving thread is stuck.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A2",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport makes a blocked send_multiple_tensors end with an error within five seconds.",
        source="doc TensorTransportManager.can_abort_transport; doc TensorTransportManager.abort_transport; "
        "src rdt_manager.py _abort_transport",
        suffers="After one failed transfer the source sends nothing more, to anybody.",
        applies=Applies.ABORTABLE_TWO_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "A3",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport for a transfer that has ended, or for an unknown object, keeps nothing and changes "
        "nothing later, except that one receive already queued may fail.",
        source="src rdt_manager.py _monitor_failures; src rdt_manager.py _abort_transport",
        suffers="A timeout that came a moment too late makes a later transfer of the same object fail.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A4",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport called repeatedly, or by several threads at once, causes no hang and no lasting "
        "effect.",
        source="src rdt_manager.py _abort_transport; doc TensorTransportManager.abort_transport",
        suffers="When several transfers of one object fail together, the actor does not recover.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A4b",
        Area.ABORT,
        Level.SHOULD,
        sentence="abort_transport called repeatedly, or by several threads at once, raises nothing.",
        source="src rdt_store.py __ray_abort_transport__",
        suffers="The log shows errors of the clean-up beside the error that matters.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A5",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport of one transfer leaves all others undisturbed.",
        source="doc TensorTransportManager.abort_transport; doc TensorTransportManager.can_abort_transport",
        suffers="One dead actor makes transfers between healthy ones fail.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A6",
        Area.ABORT,
        Level.MUST,
        sentence="The transport writes nothing into the receiver's memory after a transfer was aborted or returned an "
        "error.",
        source="nixl#2044; doc TensorTransportManager.can_abort_transport",
        suffers="Memory that already serves another purpose is overwritten by a transfer that was given up.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A7",
        Area.ABORT,
        Level.MUST,
        sentence="The transport gives back everything that an aborted transfer used.",
        source="doc TensorTransportManager.can_abort_transport; doc FetchRequest",
        suffers="Every failed transfer costs memory, a registration or a thread for ever.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A8",
        Area.ABORT,
        Level.MUST,
        sentence="The transport carries objects between the same two actors again after an abort, also the same "
        "object.",
        source="ray#56783; doc TensorTransportManager.can_abort_transport",
        suffers="After one failure two actors can never exchange anything again.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A9",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport itself returns promptly.",
        source="src actor.py _ray_system_error; src rdt_manager.py _abort_transport",
        suffers="Aborts queue up behind each other while transfers stay stuck.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A10",
        Area.ABORT,
        Level.MUST,
        sentence="A transport that claims to be able to abort is seen to end a transfer that has begun and would not "
        "have ended by itself.",
        source="doc TensorTransportManager.can_abort_transport",
        suffers="Ray trusts a claim that was never put to the test, and does not kill actors that are stuck.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A11",
        Area.ABORT,
        Level.MUST,
        sentence="A transport that cannot abort holds nobody up once Ray has killed both actors of a failed transfer: "
        "the consumer gets an error.",
        source="doc TensorTransportManager.can_abort_transport; src rdt_manager.py _abort_transport",
        suffers="A failed transfer hangs the whole job instead of failing it.",
        applies=Applies.NOT_ABORTABLE,
        engines=frozenset({"ray"}),
    ),
)
