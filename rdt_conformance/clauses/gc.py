"""Freeing: everything comes back, nothing that is still needed goes."""

from __future__ import annotations

from rdt_conformance.contract_types import PROCESSES, REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "G1",
        Area.GC,
        Level.MUST,
        sentence="The transport uses no more memory, registrations, files, sockets and threads after many cycles of "
        "create, transfer and free than after a few.",
        source="doc TensorTransportManager.garbage_collect; ray#57138",
        suffers="A job that runs for days runs out of memory, of open files or of registrations.",
        why="garbage_collect is the only word that Ray gives when an object is gone, and it gives it on the source "
        "alone. What a receiver needed for a transfer has to go with the transfer.",
        fix="Pair each thing that is opened with what closes it: in garbage_collect on the source, in finally on the "
        "receiver. The failure says what has grown. A record of a fixed size may keep up to a thousand entries.",
    ),
    Clause(
        "G2",
        Area.GC,
        Level.MUST,
        sentence="garbage_collect works for an object that nobody received, that was received once or often, and that "
        "has no tensors.",
        source="src rdt_store.py __ray_free__; doc TensorTransportManager.garbage_collect; ray#57603",
        suffers="Unused or empty objects are never given back, and only the log says so.",
        why="Ray frees each object with the same call, whether anybody has received it or not. An exception is only "
        "logged, and the object is dropped from Ray's store all the same.",
        fix="Look up what you keep by obj_id, not by the tensors or by a receiver, and take nothing to be there that "
        "only a transfer sets up.",
    ),
    Clause(
        "G3",
        Area.GC,
        Level.MUST,
        sentence="garbage_collect called again for the same object frees nothing that belongs to another one.",
        source="src rdt_store.py __ray_free__; doc TensorTransportManager.garbage_collect",
        suffers="A live object loses its memory because another one was freed twice.",
        why="Ray looks into its own store before it frees, and says itself that a free may be a retry.",
        fix="Take the entry out of a dictionary with pop(obj_id, None) and release what came out. Do not release by "
        "address, slot or count, which may belong to another object by now.",
        engines=REFERENCE,
    ),
    Clause(
        "G3b",
        Area.GC,
        Level.SHOULD,
        sentence="garbage_collect called again for the same object raises nothing.",
        source="src rdt_store.py __ray_free__",
        suffers="The log fills with errors about frees that have long been done.",
        why="Ray logs an exception of garbage_collect with its traceback.",
        fix="Return quietly if there is nothing under this obj_id.",
        engines=REFERENCE,
    ),
    Clause(
        "G4",
        Area.GC,
        Level.MUST,
        sentence="garbage_collect of one object leaves other live objects that share its tensors or their storage "
        "ready to be fetched.",
        source="ray#60509; ray#60999; ray#61122",
        suffers="Dropping one reference makes another one fail.",
        why="Objects have lives of their own, whatever memory they share.",
        fix="Count the objects that use a registration, a segment or an address, and release it with the last one; or "
        "keep one for each object.",
    ),
    Clause(
        "G5",
        Area.GC,
        Level.MUST,
        sentence="The transport keeps received tensors valid and unchanged after the source has freed the object and "
        "reused or lost its memory.",
        source="doc TensorTransportManager.garbage_collect",
        suffers="Tensors change or crash the process long after they were received.",
        why="Ray documents that a receiver needs no clean-up: its tensors are ordinary ones, and live as long as the "
        "user wants.",
        fix="Copy, or make the tensors own what they lie in, so that the mapping or the buffer lives as long as they "
        "do. Memory that the source can reuse must not be handed out.",
    ),
    Clause(
        "G6",
        Area.GC,
        Level.MUST,
        sentence="The transport holds no reference to the source's tensors after garbage_collect.",
        source="doc TensorTransportManager.garbage_collect; src rdt_manager.py wait_tensor_freed",
        suffers="The memory of the source stays in use although every reference is gone.",
        why="A user who waits in wait_tensor_freed, or drops the last reference, expects the memory back.",
        fix="Remove the tensors from every container, closure and thread in garbage_collect. Typical hiding places are "
        "a queue of finished sends, a default argument, a cached last error with its traceback.",
    ),
    Clause(
        "G7",
        Area.GC,
        Level.MUST,
        sentence="garbage_collect while another process fetches the object makes that fetch end with the exact data "
        "or an error, never with other data or a hang.",
        source="src rdt_manager.py free_object_primary_copy; ray#53911; ray#57962",
        suffers="A fetch that is late by a moment returns what now lies at that address.",
        why="The owner frees an object when its references are gone. A fetch of another process may still be in flight "
        "then.",
        fix="Let the source keep the memory until those who read it have finished, or let the reader verify afterwards "
        "that the object was still the same, by a number that is never used twice, and raise an error if not.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "G8",
        Area.GC,
        Level.MUST,
        sentence="The transport treats memory that was freed and allocated again at the same address, in another "
        "size, as new.",
        source="ray#65701",
        suffers="A buffer that grew between two steps cannot be sent any more.",
        why="Allocators give the same address again soon, for a block of another size. An address does not name an "
        "object.",
        fix="Do not key a registration by address alone. Drop it with the last object that uses it, or compare address "
        "and length each time, and register anew when they differ.",
        applies=Applies.CHOSEN_MEMORY,
    ),
    Clause(
        "G9",
        Area.GC,
        Level.SHOULD,
        sentence="A fetch through the transport that begins after garbage_collect ends with an error or the exact "
        "data.",
        source="ray#57962; ray#61096",
        suffers="A late holder of a reference reads memory that now belongs to something else.",
        why="Borrowers of a reference and retried tasks can come late. Ray 2.60 does not tell them that the object was "
        "freed.",
        fix="Give each object a number that is never used again, let the reader present it, and answer what is not "
        "known any more with an error.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "G10",
        Area.GC,
        Level.SHOULD,
        sentence="garbage_collect returns promptly.",
        source="src rdt_manager.py free_object_primary_copy; src actor.py _ray_system",
        suffers="Freeing objects delays the transfers that wait behind it.",
        why="Frees run on the thread that also sends and receives for that actor, and for an object of the driver in "
        "the core worker's own.",
        fix="Do not wait for receivers or for the network in garbage_collect. Mark the object as freed, and let "
        "whoever finishes last release it.",
        engines=REFERENCE,
    ),
    Clause(
        "G11",
        Area.GC,
        Level.SHOULD,
        sentence="While nothing is under way, the transport leaves the processor to others.",
        source="nixl#297",
        suffers="Every actor that has used the transport once takes a processor away from those that have work to do.",
        why="Actors of one job share their machine's processors, and most of them transfer nothing most of the time.",
        fix="Let threads sleep until there is something to do: wait for an event, a file descriptor or a queue, or "
        "pause between two looks, for longer the longer nothing has come.",
        engines=PROCESSES,
    ),
)
