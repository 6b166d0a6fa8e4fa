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
        why="The receiver compares the number of tensors that arrived with the length of tensor_meta, and target "
        "buffers are checked against its shapes and dtypes before the transport is asked to fill them.",
        fix="Build tensor_meta in one pass over the tensors: [(t.shape, t.dtype) for t in rdt_object]. Do not sort, "
        "merge or drop any, and do not describe a base in place of its view.",
    ),
    Clause(
        "M2",
        Area.METADATA,
        Level.MUST,
        sentence="tensor_device in the transport's metadata is the type of device that holds the tensors, as a string "
        "like 'cpu', and is among the registered devices.",
        source="src rdt_store.py add_object_primary; src util.py device_match_transport; doc TensorTransportMetadata",
        suffers="The task that produced the tensors fails and says that its device is not supported.",
        why="After the call Ray compares tensor_device with the list of devices that was registered, as strings, and "
        "raises a ValueError in the producer if it is not among them.",
        fix="Give tensor.device.type, such as 'cpu' or 'cuda', and not the torch.device or 'cuda:0'. For an object "
        "without tensors leave it None.",
    ),
    Clause(
        "M3",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata refuses an object whose tensors lie on different types of device, "
        "with an error that says so.",
        source="doc TensorTransportMetadata",
        suffers="Some tensors of the object arrive on the wrong device or with wrong contents.",
        why="An object has one tensor_device. Ray's metadata say so and rely on the transport to refuse anything else.",
        fix="Compare the device type of every tensor with that of the first one in extract_tensor_transport_metadata, "
        "and raise a ValueError that names both. Do so before anything is registered.",
    ),
    Clause(
        "M4",
        Area.METADATA,
        Level.MUST,
        sentence="The transport gives an object without tensors an empty tensor_meta, and such an object is passed on "
        "and freed without an error.",
        source="src serialization.py store_rdt_objects; src rdt_store.py __ray_free__; ray#57603",
        suffers="A task that for once returns no tensors fails, or its object is never freed.",
        why="A task may return a value without any tensors. Ray stores and describes it all the same, with an empty "
        "list, so that what waits for it is not blocked, and later frees it.",
        fix="Do not look at rdt_object[0] before you know that there is one. Return tensor_meta=[] and "
        "tensor_device=None, and let receiving and freeing do nothing for such an object.",
    ),
    Clause(
        "M4b",
        Area.METADATA,
        Level.SHOULD,
        sentence="The transport receives an object without tensors as an empty list.",
        source="src rdt_store.py __ray_recv__; doc TensorTransportManager.recv_multiple_tensors",
        suffers="Errors pile up in the consumer's process that nobody asks for, as Ray receives such an object too.",
        why="Ray starts a transfer for every reference that is an argument, without a look at how many tensors there "
        "are, and compares the length of what came with that of tensor_meta.",
        fix="Return [] early in recv_multiple_tensors when tensor_meta is empty, also when there is no connection or "
        "registration to look up.",
    ),
    Clause(
        "M5",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata leaves the tensors as they were: contents, shape, strides and "
        "version counters.",
        source="doc direct-transport.md#object-mutability; src rdt_store.py add_object_primary",
        suffers="The producer's own tensors change under it, or its backward pass fails.",
        why="Ray hands over the producer's own tensors, not copies. The producer may still use them, and autograd "
        "counts every write through the version counter.",
        fix="Read only. Where the bytes have to be contiguous, make a copy with .contiguous() or .clone(), and use "
        "that; never call an in-place method, resize_, set_ or share_memory_ on what you were given.",
    ),
    Clause(
        "M6",
        Area.METADATA,
        Level.MUST,
        sentence="extract_tensor_transport_metadata can be called again for the same object: the result describes the "
        "same tensors, and one garbage_collect releases everything.",
        source="src rdt_store.py add_object_primary; ray#62842",
        suffers="A task that is retried because its reply was lost fails, or leaks memory.",
        why="When a task succeeded but its reply was lost, Ray runs it again. The object is in the store already, and "
        "Ray asks the transport to describe that one again. It is freed once.",
        fix="Key what you keep by obj_id, and on a second call replace or reuse it instead of adding. Do not count "
        "calls: one garbage_collect has to release everything.",
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
        why="Ray frees an object by its metadata. An object whose description failed has none, so garbage_collect is "
        "never called for it.",
        fix="Check all tensors before you register the first. Where registration itself can fail, undo in an except "
        "block what was done so far, and raise again.",
    ),
    Clause(
        "M8",
        Area.METADATA,
        Level.MUST,
        sentence="The transport refuses a tensor that it cannot carry in extract_tensor_transport_metadata, with a "
        "clear error, and never carries it wrongly.",
        source="doc direct-transport.md#error-handling; src nixl_tensor_transport.py extract_tensor_transport_metadata",
        suffers="Wrong contents arrive, or the consumer gets an error that only the producer could understand.",
        why="An error at extract reaches the task that produced the tensors, which is where the author of that code "
        "can see it. Later there are only bytes, a shape and a dtype.",
        fix="Accept by a list of what you know to carry: plain torch.Tensor, strided layout, known device, neither "
        "quantized nor nested. Raise a ValueError for the rest that says what it is. Resolve lazy conjugation and "
        "negation, or refuse them.",
    ),
)
