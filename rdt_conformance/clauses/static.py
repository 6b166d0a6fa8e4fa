"""What holds before anything is transferred: the class, its signatures, how it travels."""

from __future__ import annotations

from rdt_conformance.contract_types import Area, Clause, Level

CLAUSES = (
    Clause(
        "S1",
        Area.STATIC,
        Level.MUST,
        sentence="The transport is a subclass of TensorTransportManager with no abstract method left, and is built "
        "without arguments.",
        source="src util.py register_tensor_transport; src util.py get_tensor_transport_manager; "
        "doc custom-tensor-transport.md",
        suffers="Registering the transport, or the first object that uses it, fails with a ValueError or TypeError.",
    ),
    Clause(
        "S2",
        Area.STATIC,
        Level.MUST,
        sentence="is_one_sided, called on the class, and can_abort_transport, called on an instance, each answer with "
        "a bool that never changes.",
        source="doc TensorTransportManager.is_one_sided; doc TensorTransportManager.can_abort_transport; "
        "src util.py is_one_sided_transport; src rdt_manager.py _abort_transport",
        suffers="A transfer is set up the wrong way round, or an error that could have been cleaned up kills actors.",
    ),
    Clause(
        "S3",
        Area.STATIC,
        Level.MUST,
        sentence="tensor_transport_backend is a method that returns the name under which the transport is registered, "
        "upper and lower case aside.",
        source="doc TensorTransportManager.tensor_transport_backend; doc custom-tensor-transport.md",
        suffers="Tools that ask the transport for its name fail or name another one.",
    ),
    Clause(
        "S4",
        Area.STATIC,
        Level.MUST,
        sentence="Every method accepts the calls that Ray makes: the documented arguments by position, and timeout "
        "of wait_fetch_complete by name.",
        source="src rdt_manager.py _trigger_fetch; src rdt_manager.py _wait_fetch; src rdt_store.py __ray_recv__; "
        "src rdt_store.py __ray_free__; ray#61094",
        suffers="A transfer or a free fails with a TypeError about arguments, often after an upgrade of Ray.",
    ),
    Clause(
        "S5",
        Area.STATIC,
        Level.MUST,
        sentence="The transport class can be sent to another process, by reference or by value, and be built there.",
        source="src util.py register_custom_tensor_transports_on_actor; ray#59255",
        suffers="Actors never learn of the transport and their first call that uses it fails.",
    ),
    Clause(
        "S6",
        Area.STATIC,
        Level.MUST,
        sentence="Metadata and communicator metadata are of Ray's base classes or of subclasses, and they and the "
        "transport's exceptions can be pickled and unpickled.",
        source="src serialization.py store_rdt_objects; src rdt_manager.py trigger_out_of_band_tensor_transfer; "
        "doc custom-tensor-transport.md",
        suffers="An object cannot leave the actor that made it, or an error arrives without its type.",
    ),
    Clause(
        "S7",
        Area.STATIC,
        Level.SHOULD,
        sentence="The transport's metadata for an object of a thousand tensors stay under a hundred kilobytes.",
        source="ray#65770",
        suffers="Objects of many tensors are slow, because their metadata no longer travel in the reply itself.",
    ),
    Clause(
        "S8",
        Area.STATIC,
        Level.MUST,
        sentence="actor_has_tensor_transport promptly returns a bool and never raises, also when the transport is not "
        "yet registered on that actor.",
        source="src actor.py actor_has_tensor_transport; doc TensorTransportManager.actor_has_tensor_transport; "
        "src cuda_ipc_transport.py actor_has_tensor_transport",
        suffers="Every call of a method that returns tensors stalls or fails before the task is even submitted.",
    ),
    Clause(
        "S9",
        Area.STATIC,
        Level.SHOULD,
        sentence="Building the transport opens no device, network connection or thread; that waits until an object "
        "needs it.",
        source="src util.py get_tensor_transport_manager; src nixl_tensor_transport.py __init__",
        suffers="A driver that only coordinates needs the devices of its actors, or fails without them.",
    ),
)
