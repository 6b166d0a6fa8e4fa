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
        why="Registering refuses a class that is not a subclass. In each process that uses the transport Ray then "
        "builds one instance for each name, when it is first needed, and passes no arguments.",
        fix="Subclass ray.experimental.TensorTransportManager and implement every abstract method; one that is never "
        "called for your kind of transport may raise NotImplementedError. Give every argument of the constructor a "
        "default.",
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
        why="Ray asks the class whether it is one-sided, to decide whether the source takes part in a transfer. When a "
        "transfer has failed, the owner asks its instance whether it can abort; if not, Ray kills the actors.",
        fix="Make both static methods and let each return a constant True or False. The answer must be the same in "
        "every process, so do not look at the machine or at the state of the instance.",
    ),
    Clause(
        "S3",
        Area.STATIC,
        Level.MUST,
        sentence="tensor_transport_backend is a method that returns the name under which the transport is registered, "
        "upper and lower case aside.",
        source="doc TensorTransportManager.tensor_transport_backend; doc custom-tensor-transport.md",
        suffers="Tools that ask the transport for its name fail or name another one.",
        why="The interface declares a method, and documents its result as the name that users write in "
        "tensor_transport=. Ray compares names in upper case.",
        fix="Write a plain method, not a property or an attribute, that returns the very name you register.",
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
        why="Ray calls the methods by position and passes only the timeout of wait_fetch_complete by name. A get "
        "passes four arguments to fetch_multiple_tensors, and a task's argument passes three to recv_multiple_tensors.",
        fix="Copy the signatures from the installed Ray, with target_buffers=None and timeout=-1 as defaults. "
        "Additional arguments of your own need defaults.",
    ),
    Clause(
        "S5",
        Area.STATIC,
        Level.MUST,
        sentence="The transport class can be sent to another process, by reference or by value, and be built there.",
        source="src util.py register_custom_tensor_transports_on_actor; ray#59255",
        suffers="Actors never learn of the transport and their first call that uses it fails.",
        why="For a custom transport Ray sends the class to each actor in a task, by pickle, and registers it there. "
        "Actors build their own instance from it.",
        fix="Define the class at the top of a module that every worker can import. If it has to travel by value, keep "
        "locks, sockets and open files out of the class and out of what its methods close over.",
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
        why="The metadata are pickled into the reply of the task that made the object, both metadata are arguments of "
        "the tasks that send and receive, and an exception travels back to whoever asked.",
        fix="Derive your metadata from TensorTransportMetadata and CommunicatorMetadata as dataclasses of plain "
        "values, and return an instance, never None. An exception class with arguments of its own must pass them all "
        "to super().__init__.",
    ),
    Clause(
        "S7",
        Area.STATIC,
        Level.SHOULD,
        sentence="The transport's metadata for an object of a thousand tensors stay under a hundred kilobytes.",
        source="ray#65770",
        suffers="Objects of many tensors are slow, because their metadata no longer travel in the reply itself.",
        why="Metadata go to the owner in the reply of the task and from there to every receiver, once for each "
        "transfer.",
        fix="Say once for the object what is the same for all its tensors, and keep what belongs to a tensor to a few "
        "dozen bytes: an offset and a length, not a serialized handle each.",
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
        why="Ray calls it in the caller's process before every call of a method with a tensor transport, which is "
        "before a custom transport is known to be registered on that actor. An answer of False raises a ValueError in "
        "the caller.",
        fix="Return True unless you know otherwise from what the calling process already holds. Do not ask the actor: "
        "a ray.get in here makes each call wait for it.",
    ),
    Clause(
        "S9",
        Area.STATIC,
        Level.SHOULD,
        sentence="Building the transport opens no device, network connection or thread; that waits until an object "
        "needs it.",
        source="src util.py get_tensor_transport_manager; src nixl_tensor_transport.py __init__",
        suffers="A driver that only coordinates needs the devices of its actors, or fails without them.",
        why="Each process that owns references builds the transport too, to ask it about actors and communicators, "
        "also a driver that never sends or receives.",
        fix="Leave __init__ with locks and empty containers. Open the device, the socket or the thread when the first "
        "object is described or received, under a lock, so that two threads do not open it twice.",
    ),
)
