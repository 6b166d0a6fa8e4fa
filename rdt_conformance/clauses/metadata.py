"""What the source says about an object, in ``extract_tensor_transport_metadata``."""

from __future__ import annotations

from rdt_conformance.contract_types import REFERENCE, Area, Clause, Level

CLAUSES = (
    Clause(
        "M1",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata lists the shape and dtype of every tensor, in the order in which "
        "the tensors were given.",
        source="doc TensorTransportMetadata; src rdt_store.py __ray_recv__; src rdt_store.py validate_tensor_buffers",
        suffers="A transfer fails with a bare AssertionError, or fitting target buffers are refused.",
    ),
    Clause(
        "M2",
        Area.METADATA,
        Level.MUST,
        sentence="tensor_device in the transport's metadata is the type of device that holds the tensors, as a string "
        "like 'cpu', and is among the registered devices.",
        source="src rdt_store.py add_object_primary; src util.py device_match_transport; doc TensorTransportMetadata",
        suffers="The task that produced the tensors fails and says that its device is not supported.",
    ),
    Clause(
        "M3",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata refuses an object whose tensors lie on different types of device, "
        "with an error that says so.",
        source="doc TensorTransportMetadata",
        suffers="Some tensors of the object arrive on the wrong device or with wrong contents.",
    ),
    Clause(
        "M4",
        Area.METADATA,
        Level.MUST,
        sentence="The transport gives an object without tensors an empty tensor_meta, and such an object is passed on "
        "and freed without an error.",
        source="src serialization.py store_rdt_objects; src rdt_store.py __ray_free__; ray#57603",
        suffers="A task that for once returns no tensors fails, or its object is never freed.",
    ),
    Clause(
        "M4b",
        Area.METADATA,
        Level.SHOULD,
        sentence="The transport receives an object without tensors as an empty list.",
        source="src rdt_store.py __ray_recv__; doc TensorTransportManager.recv_multiple_tensors",
        suffers="Errors pile up in the consumer's process that nobody asks for, as Ray receives such an object too.",
    ),
    Clause(
        "M5",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata leaves the tensors as they were: contents, shape, strides and "
        "version counters.",
        source="doc direct-transport.md#object-mutability; src rdt_store.py add_object_primary",
        suffers="The producer's own tensors change under it, or its backward pass fails.",
    ),
    Clause(
        "M6",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata can be called again for the same object: the result describes the "
        "same tensors, and one garbage_collect releases everything.",
        source="src rdt_store.py add_object_primary; ray#62842",
        suffers="A task that is retried because its reply was lost fails, or leaks memory.",
        engines=REFERENCE,
    ),
    Clause(
        "M7",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata leaves nothing behind when it raises: no registration, memory, "
        "file or reference to a tensor.",
        source="src rdt_store.py add_object_primary; src rdt_manager.py queue_or_free_object_primary_copy",
        suffers="Every refused object costs memory for ever, because Ray never frees what has no metadata.",
    ),
    Clause(
        "M8",
        Area.METADATA,
        Level.MUST,
        sentence="The transport refuses a tensor that it cannot carry in extract_tensor_transport_metadata, with a "
        "clear error, and never carries it wrongly.",
        source="doc direct-transport.md#error-handling; src nixl_tensor_transport.py extract_tensor_transport_metadata",
        suffers="Wrong contents arrive, or the consumer gets an error that only the producer could understand.",
    ),
)
