"""The life of an object: made, passed on, received by one or many."""

from __future__ import annotations

from rdt_conformance.contract_types import REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "L1",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport carries an object from the task that produced it to the task that consumes it.",
        source="doc custom-tensor-transport.md; src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="Nothing arrives.",
        why="This is what a transport is for: Ray describes the object on the source, and asks the destination to "
        "receive it before the consuming task gets its arguments.",
        fix="Look at the first failing example and its history. Which call raised, or did not return? Most often the "
        "metadata do not say all that the receiver needs.",
    ),
    Clause(
        "L2",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport delivers one object to many receivers, one after another and at the same time.",
        source="src rdt_manager.py queue_or_trigger_out_of_band_tensor_transfer",
        suffers="Of several workers that were given the same weights only some get them.",
        why="Ray starts one transfer for each actor that gets the reference. It says nothing to the source when one "
        "has ended.",
        fix="Keep the object until garbage_collect, not until it was first received. Give each receive a state of its "
        "own, for instance keyed by object and receiver.",
    ),
    Clause(
        "L3",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport delivers the same object to the same receiver again.",
        source="src rdt_manager.py _trigger_fetch; src rdt_manager.py get_rdt_objects",
        suffers="The second get of a reference fails or hangs.",
        why="A get starts a fetch each time. Ray 2.60 does not keep what an earlier get brought.",
        fix="Do not remember on the receiver that an object has come, and do not let the source drop it after the "
        "first delivery. For two-sided transports every send needs its own match.",
    ),
    Clause(
        "L4",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport keeps many live objects of one source apart, returned or put, by an actor or the "
        "driver, however much their identifiers are alike.",
        source="src rdt_manager.py put_object; ray#65072; doc custom-tensor-transport.md",
        suffers="The second object that is put fails, or a reference gives another object's contents.",
        why="Ids are long hexadecimal strings. Those of one task or one process share most of their beginning.",
        fix="Use the whole obj_id as the key. If it has to be short, as in the name of a file or a tag, count objects "
        "yourself and put the number into the metadata.",
    ),
    Clause(
        "L5",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport carries tensors that are in several live objects at once, as the same tensor, as base "
        "and view, and as overlapping views.",
        source="ray#60509; ray#61122; ray#60999; ray#58063",
        suffers="Sharing a tensor between two objects fails, or one of them arrives with wrong contents.",
        why="A user may return the same tensor from two tasks, put a tensor and its slices, or overlap two views. Ray "
        "makes one object for each, with a life of its own.",
        fix="Count users of a registration instead of refusing a second one, and release it with the last. Key by "
        "address and length together, or by object: base and view may begin at the same address.",
    ),
    Clause(
        "L6",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport lets chains and exchanges of objects among actors end in bounded time.",
        source="ray#58575; ray#59610; src actor.py _ray_system",
        suffers="A pipeline of actors stops for ever.",
        why="Each actor has one thread for transfers, _ray_system. What it does one after another can wait for what "
        "another actor does one after another.",
        fix="Hold no lock of the transport while you wait for another process, and do not wait in a send for a "
        "receiver that is itself sending. Serve requests from a thread of your own, or let sends return once the data "
        "are on their way.",
    ),
    Clause(
        "L7",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport keeps no consumer waiting for an object that was never made: the producer's error "
        "reaches the consumer promptly.",
        source="ray#61579; doc direct-transport.md#error-handling",
        suffers="A failed task shows up as a timeout a minute later, without its cause.",
        why="If the producing task fails there is no object and no transfer; the consumer's task fails with the "
        "producer's error.",
        fix="Do not catch and keep errors from extract_tensor_transport_metadata: let them out. Do not start work for "
        "an object before it was described.",
    ),
    Clause(
        "L8",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="A one-sided transport delivers although Ray never calls its send_multiple_tensors.",
        source="doc TensorTransportManager.send_multiple_tensors; doc TensorTransportManager.is_one_sided; "
        "src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="Every receiver waits for a send that does not come.",
        why="For a one-sided transport Ray starts only the receive. The source is not told.",
        fix="Make the data reachable in extract_tensor_transport_metadata, before it returns: registered, written or "
        "served. If the source must act for each transfer, the transport is two-sided and is_one_sided has to say "
        "False.",
        applies=Applies.ONE_SIDED,
    ),
    Clause(
        "L9",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="get_communicator_metadata of a one-sided transport accepts None for the source alone, as "
        "in a put of the driver, and for both actors, as in a get.",
        source="src rdt_manager.py _trigger_fetch; src rdt_manager.py trigger_out_of_band_tensor_transfer; ray#65072",
        suffers="Every get of an object, and every object that the driver put, fails.",
        why="A get calls get_communicator_metadata with None for both actors, since the receiver is the caller itself. "
        "For an object that the driver has put, the source actor is None.",
        fix="Do not use the actors in a one-sided transport. Where the receiver finds the source belongs into the "
        "metadata of the object.",
        applies=Applies.ONE_SIDED,
    ),
    Clause(
        "L10",
        Area.LIFECYCLE,
        Level.SHOULD,
        sentence="get_communicator_metadata returns without waiting for an actor.",
        source="src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="One busy actor holds up all transfers and frees of the driver.",
        why="For a task's argument Ray calls it in the owner while it holds the lock that guards everything about its "
        "references.",
        fix="Answer from what the owner's process knows. Exchange addresses in the metadata of the object, or when the "
        "receiver connects, not with a ray.get in here.",
        engines=REFERENCE,
    ),
    Clause(
        "L11",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="A one-sided transport delivers while the source's main thread is busy.",
        source="doc TensorTransportManager.is_one_sided; src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="Receivers wait until the source has finished its current task.",
        why="Users expect of a one-sided transport that a receiver can read while the source computes, which is what "
        "one-sided means.",
        fix="Let the hardware, the kernel or a thread of your own serve the data. A task submitted to the source has "
        "to wait for its main thread.",
        applies=Applies.ONE_SIDED,
    ),
    Clause(
        "L12",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport works when a process uses it for the first time in any role: producer, putter, "
        "consumer, holder of a borrowed reference, driver.",
        source="ray#59255; src util.py get_tensor_transport_manager",
        suffers="The first transfer of a new actor fails and the second one works.",
        why="Ray builds the transport in a process when it is first used, in whatever role. There is no call that "
        "says: get ready.",
        fix="Create what is needed in every method, through one function that does so once and under a lock. Do not "
        "count on extract having run before recv in the same process. Do not clear up when built: what looks left "
        "over, as in a folder, is what others share.",
    ),
    Clause(
        "L13",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport delivers the same reference twice, in one call and in two calls to the same actor.",
        source="ray#54808; ray#55628; src rdt_manager.py queue_or_trigger_out_of_band_tensor_transfer",
        suffers="The second of two tasks that use the same object hangs.",
        why="Each call of a task starts a transfer of its own for the reference; within one call Ray asks for each "
        "object once.",
        fix="Give each transfer a state of its own and drop it when the transfer ends. A mark such as 'this pair has "
        "this object' makes the second one wait for ever.",
    ),
    Clause(
        "L14",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport still delivers an object whose reference is dropped right after the task that "
        "consumes it was submitted.",
        source="ray#53911; src rdt_manager.py queue_or_free_object_primary_copy",
        suffers="A temporary reference passed to a task sometimes arrives as an error or as other data.",
        why="The task that consumes an object holds the last reference to it. Ray frees the object once that task has "
        "ended, which may be the next thing to happen.",
        fix="What was delivered must not depend on the object any more: copy it out of memory that belongs to the "
        "source or to a pool before you return it. Keep the object itself until garbage_collect.",
    ),
)
