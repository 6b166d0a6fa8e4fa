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
    ),
    Clause(
        "O2",
        Area.ORDERING,
        Level.MUST,
        sentence="wait_fetch_complete works for several fetches in any order.",
        source="src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="A get of several references hangs or returns them mixed up.",
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
    ),
    Clause(
        "O5",
        Area.ORDERING,
        Level.MUST,
        sentence="The transport delivers contents that the tensors had between extract_tensor_transport_metadata and "
        "the arrival: never older ones, never those of another object.",
        source="doc direct-transport.md#object-mutability",
        suffers="A receiver gets the weights of an earlier step although it was given the latest object.",
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
        applies=Applies.WRITABLE,
    ),
)
