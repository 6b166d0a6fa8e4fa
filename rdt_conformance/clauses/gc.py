"""Freeing: everything comes back, nothing that is still needed goes."""

from __future__ import annotations

from rdt_conformance.contract_types import REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "G1",
        Area.GC,
        Level.MUST,
        sentence="The transport uses no more memory, registrations, files, sockets and threads after many cycles of "
        "create, transfer and free than after a few.",
        source="doc TensorTransportManager.garbage_collect; ray#57138",
        suffers="A job that runs for days runs out of memory, of open files or of registrations.",
    ),
    Clause(
        "G2",
        Area.GC,
        Level.MUST,
        sentence="garbage_collect works for an object that nobody received, that was received once or often, and that "
        "has no tensors.",
        source="src rdt_store.py __ray_free__; doc TensorTransportManager.garbage_collect; ray#57603",
        suffers="Unused or empty objects are never given back, and only the log says so.",
    ),
    Clause(
        "G3",
        Area.GC,
        Level.MUST,
        sentence="garbage_collect called again for the same object frees nothing that belongs to another one.",
        source="src rdt_store.py __ray_free__; doc TensorTransportManager.garbage_collect",
        suffers="A live object loses its memory because another one was freed twice.",
        engines=REFERENCE,
    ),
    Clause(
        "G3b",
        Area.GC,
        Level.SHOULD,
        sentence="garbage_collect called again for the same object raises nothing.",
        source="src rdt_store.py __ray_free__",
        suffers="The log fills with errors about frees that have long been done.",
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
    ),
    Clause(
        "G5",
        Area.GC,
        Level.MUST,
        sentence="The transport keeps received tensors valid and unchanged after the source has freed the object and "
        "reused or lost its memory.",
        source="doc TensorTransportManager.garbage_collect",
        suffers="Tensors change or crash the process long after they were received.",
    ),
    Clause(
        "G6",
        Area.GC,
        Level.MUST,
        sentence="The transport holds no reference to the source's tensors after garbage_collect.",
        source="doc TensorTransportManager.garbage_collect; src rdt_manager.py wait_tensor_freed",
        suffers="The memory of the source stays in use although every reference is gone.",
    ),
    Clause(
        "G7",
        Area.GC,
        Level.MUST,
        sentence="garbage_collect while another process fetches the object makes that fetch end with the exact data "
        "or an error, never with other data or a hang.",
        source="src rdt_manager.py free_object_primary_copy; ray#53911; ray#57962",
        suffers="A fetch that is late by a moment returns what now lies at that address.",
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
        engines=REFERENCE,
    ),
)
