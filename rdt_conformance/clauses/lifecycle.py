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
    ),
    Clause(
        "L2",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport delivers one object to many receivers, one after another and at the same time.",
        source="src rdt_manager.py queue_or_trigger_out_of_band_tensor_transfer",
        suffers="Of several workers that were given the same weights only some get them.",
    ),
    Clause(
        "L3",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport delivers the same object to the same receiver again.",
        source="src rdt_manager.py _trigger_fetch; src rdt_manager.py get_rdt_objects",
        suffers="The second get of a reference fails or hangs.",
    ),
    Clause(
        "L4",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport keeps many live objects of one source apart, returned or put, by an actor or the "
        "driver, however much their identifiers are alike.",
        source="src rdt_manager.py put_object; ray#65072; doc custom-tensor-transport.md",
        suffers="The second object that is put fails, or a reference gives another object's contents.",
    ),
    Clause(
        "L5",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport carries tensors that are in several live objects at once, as the same tensor, as base "
        "and view, and as overlapping views.",
        source="ray#60509; ray#61122; ray#60999; ray#58063",
        suffers="Sharing a tensor between two objects fails, or one of them arrives with wrong contents.",
    ),
    Clause(
        "L6",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport lets chains and exchanges of objects among actors end in bounded time.",
        source="ray#58575; ray#59610; src actor.py _ray_system",
        suffers="A pipeline of actors stops for ever.",
    ),
    Clause(
        "L7",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport keeps no consumer waiting for an object that was never made: the producer's error "
        "reaches the consumer promptly.",
        source="ray#61579; doc direct-transport.md#error-handling",
        suffers="A failed task shows up as a timeout a minute later, without its cause.",
    ),
    Clause(
        "L8",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="A one-sided transport delivers although Ray never calls its send_multiple_tensors.",
        source="doc TensorTransportManager.send_multiple_tensors; doc TensorTransportManager.is_one_sided; "
        "src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="Every receiver waits for a send that does not come.",
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
        applies=Applies.ONE_SIDED,
    ),
    Clause(
        "L10",
        Area.LIFECYCLE,
        Level.SHOULD,
        sentence="get_communicator_metadata returns without waiting for an actor.",
        source="src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="One busy actor holds up all transfers and frees of the driver.",
        engines=REFERENCE,
    ),
    Clause(
        "L11",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="A one-sided transport delivers while the source's main thread is busy.",
        source="doc TensorTransportManager.is_one_sided; src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="Receivers wait until the source has finished its current task.",
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
    ),
    Clause(
        "L13",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport delivers the same reference twice, in one call and in two calls to the same actor.",
        source="ray#54808; ray#55628; src rdt_manager.py queue_or_trigger_out_of_band_tensor_transfer",
        suffers="The second of two tasks that use the same object hangs.",
    ),
    Clause(
        "L14",
        Area.LIFECYCLE,
        Level.MUST,
        sentence="The transport still delivers an object whose reference is dropped right after the task that "
        "consumes it was submitted.",
        source="ray#53911; src rdt_manager.py queue_or_free_object_primary_copy",
        suffers="A temporary reference passed to a task sometimes arrives as an error or as other data.",
    ),
)
