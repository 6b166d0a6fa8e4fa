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
        why="When a transfer has failed or timed out, Ray calls abort_transport on another thread of the destination "
        "while _ray_system is still inside the receive. That thread is the only one that receives.",
        fix="Wait for something that abort can end: a socket that is shut down, an event together with a timeout, a "
        "poll in short steps. Register the transfer before it can block, so that the abort finds it.",
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
        why="For a two-sided transport Ray aborts the source too, where _ray_system may be inside a send.",
        fix="Do for sends what you do for receives: keep each under its object where abort_transport finds it, and end "
        "the call that blocks.",
        applies=Applies.ABORTABLE_TWO_SIDED,
    ),
    Clause(
        "A3",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport for a transfer that has ended, or for an unknown object, keeps nothing and changes "
        "nothing later, except that one receive already queued may fail.",
        source="src rdt_manager.py _monitor_failures; src rdt_manager.py _abort_transport",
        suffers="A timeout that came a moment too late makes a later transfer of the same object fail.",
        why="Owner, source and destination run in parallel. The owner's decision to abort can cross a transfer that "
        "just ends, or one that has not begun.",
        fix="Do not keep a note such as 'this object was aborted' for later, or drop it with the next receive of the "
        "object. An unknown obj_id is nothing to do, and no error.",
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
        why="Several receivers of one object may fail together, and each failure is an abort.",
        fix="Make it idempotent: take the transfers out under a lock, then end them. The second call finds nothing.",
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
        why="It runs as a task whose result nobody reads, so an exception only shows up in the log.",
        fix="Ignore that something is closed or gone already, and nothing else.",
        applies=Applies.ABORTABLE,
        engines=REFERENCE,
    ),
    Clause(
        "A5",
        Area.ABORT,
        Level.MUST,
        sentence="abort_transport of one transfer leaves all others undisturbed.",
        source="doc TensorTransportManager.abort_transport; doc TensorTransportManager.can_abort_transport",
        suffers="One transfer that is given up, as with a dead actor, makes healthy ones fail.",
        why="The abort names one object. Other transfers of the actor, even with the same peer, are healthy.",
        fix="End only the transfers of that object. Where several share a connection, end it and let the others open a "
        "new one, or use one for each transfer.",
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
        why="After the error the receiver's memory is the user's again, or is freed and given to somebody else.",
        fix="Before you raise, make sure that nothing writes any more: cancel and wait for the hardware or the thread, "
        "or receive into memory of your own and copy at the end.",
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
        why="Ray calls nothing else for a transfer that was aborted, on either side.",
        fix="Release in finally, on the path of an error as on that of success. Look at what the failure says has "
        "grown.",
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
        suffers="After one failure two actors can never exchange anything again, or get what is left of it.",
        why="Ray aborts a transfer, not a connection. The next task may use the same reference.",
        fix="Leave no broken connection in a cache: remove it, and connect again when it is needed next. Where both "
        "sides count messages, start both anew.",
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
        why="Aborts run on _ray_system_error, which has one thread. The next abort waits for this one.",
        fix="Only tell the transfer to end, as by a shutdown of its socket. Do not join threads, and do not talk to "
        "the peer.",
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
        why="can_abort_transport() is a promise: Ray does not kill the actors then. The suite believes it only when it "
        "saw a transfer that had begun, would not have ended by itself, and ended by the abort.",
        fix="If the transport cannot be caught in a transfer, because it never waits for anybody, return False. Else "
        "see that a transfer which has begun can be held up, as by a source that is stopped.",
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
        why="Without abort, Ray kills source and destination of a failed transfer, so that nothing is stuck for ever.",
        fix="Let no process of yours, and no lock on the machine, outlive the actors so that others wait for it. Let "
        "receivers notice that their source is gone.",
        applies=Applies.NOT_ABORTABLE,
        engines=frozenset({"ray"}),
    ),
)
