"""Several objects in flight, and the moment whose contents they show."""

from __future__ import annotations

from rdt_conformance.contract_types import REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "O1",
        Area.ORDERING,
        Level.MUST,
        sentence="The transport never mixes up objects in flight between the same two actors, in whatever order their "
        "transfers complete and whatever other pairs do meanwhile.",
        source="src rdt_manager.py trigger_out_of_band_tensor_transfer; src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="Two objects sent at about the same time arrive in each other's place.",
        why="Ray submits the sends and receives of two-sided transfers in one global order, but of several sources and "
        "destinations; a get of several references begins all its fetches before it waits for the first.",
        fix="Tag every message with the object, or a number that both sides know, and match by the tag. Where a "
        "channel has only its order, use one channel for each pair and direction.",
    ),
    Clause(
        "O2",
        Area.ORDERING,
        Level.MUST,
        sentence="wait_fetch_complete works for several fetches in any order.",
        source="src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="A get of several references hangs or returns them mixed up.",
        why="A get of several references waits for its fetches one after another, the last begun first in Ray 2.60.",
        fix="Give each FetchRequest its own completion. A shared queue of completions must note those of other "
        "requests for later, and not drop them or wait for them in order.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "O3",
        Area.ORDERING,
        Level.MUST,
        sentence="garbage_collect of one object does not disturb a fetch of another one that was begun and not yet "
        "waited for.",
        source="ray#65905; src rdt_store.py __ray_free__",
        suffers="A get fails now and then because an unrelated object was freed at that moment.",
        why="Frees run on the source at any time, and the receiver of another object does not know of them.",
        fix="Release exactly what belongs to the freed object. Do not restart a connection, rebuild a shared "
        "registration or renumber what others refer to while fetches may be in flight.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "O4",
        Area.ORDERING,
        Level.MUST,
        sentence="The transport makes progress when two actors transfer to each other at the same time.",
        source="ray#59610; src rdt_manager.py trigger_out_of_band_tensor_transfer",
        suffers="Two actors that exchange results wait for each other for ever.",
        why="Two actors may be source and destination of each other at once, and each has one thread for transfers.",
        fix="Hold no lock while you wait for the other side. Let a send return once the data are buffered or queued, "
        "or make progress on incoming data while an outgoing transfer waits.",
    ),
    Clause(
        "O5",
        Area.ORDERING,
        Level.MUST,
        sentence="The transport delivers contents that the tensors had between extract_tensor_transport_metadata and "
        "the arrival: never older ones, never those of another object.",
        source="doc direct-transport.md#object-mutability",
        suffers="A receiver gets the weights of an earlier step although it was given the latest object.",
        why="The object is mutable, so a transfer may show what the source wrote later. It may not show what was there "
        "before the object was made.",
        fix="Do not keep copies by address or by tensor between objects. If you stage data, stage it anew in every "
        "extract, or at the transfer.",
        applies=Applies.WRITABLE,
    ),
    Clause(
        "O6",
        Area.ORDERING,
        Level.REPORT,
        sentence="The transport delivers the contents at the time of extract_tensor_transport_metadata or those at "
        "the time of the transfer; users want to know which.",
        source="doc direct-transport.md#object-mutability; src rdt_manager.py wait_tensor_freed",
        suffers="A producer does not know how long it has to leave its tensors alone.",
        why="Ray documents that tensors of an object may change until it is freed, and offers wait_tensor_freed for "
        "it. When the bytes are taken is up to the transport.",
        fix="Nothing has to be fixed. Tell your users which of the two it is, as the report does.",
        applies=Applies.WRITABLE,
    ),
)
