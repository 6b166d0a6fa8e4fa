"""What arrives is what was sent."""

from __future__ import annotations

from rdt_conformance.contract_types import Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "D1",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport delivers every tensor that it accepted with the same dtype, shape and bytes, whatever "
        "its dtype, size and number of dimensions.",
        source="doc TensorTransportManager.recv_multiple_tensors; doc TensorTransportMetadata",
        suffers="Computations go on with wrong numbers and without any error.",
    ),
    Clause(
        "D2",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport delivers as many tensors as were sent, in the same order.",
        source="src rdt_store.py __ray_recv__; src serialization.py serialize_rdt_objects",
        suffers="The tensors of a nested value come back in each other's place.",
    ),
    Clause(
        "D3",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport delivers any view of a tensor, such as a strided, transposed, expanded or overlapping "
        "one, as an equal tensor, or refuses it.",
        source="doc TensorTransportMetadata; ray#61122; ray#60999; "
        "src nixl_tensor_transport.py extract_tensor_transport_metadata",
        suffers="A slice or a transposed tensor silently arrives with the contents of its neighbours.",
    ),
    Clause(
        "D4",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport leaves the source's tensors unchanged by any transfer.",
        source="doc direct-transport.md#object-mutability",
        suffers="A model's weights change because somebody received them.",
    ),
    Clause(
        "D5",
        Area.INTEGRITY,
        Level.MUST,
        sentence="Where the transport delivers copies, each receiver has its own, and writing into one changes no "
        "other.",
        source="src rdt_store.py add_object; ray#54808; ray#55628",
        suffers="One consumer's update in place shows up in another consumer's tensor.",
        applies=Applies.WRITABLE,
    ),
    Clause(
        "D5r",
        Area.INTEGRITY,
        Level.REPORT,
        sentence="The transport delivers either copies or tensors that share memory with the source; users want to "
        "know which.",
        source="doc direct-transport.md#object-mutability; src cuda_ipc_transport.py recv_multiple_tensors",
        suffers="A consumer that writes into what it received does not know whether the source sees it.",
        applies=Applies.WRITABLE,
    ),
    Clause(
        "D6",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport leaves tensors that it delivered earlier unchanged when it delivers later ones.",
        source="doc TensorTransportManager.garbage_collect; doc TensorTransportManager.recv_multiple_tensors",
        suffers="A batch that was received before changes while it is being used.",
    ),
    Clause(
        "D7",
        Area.INTEGRITY,
        Level.SHOULD,
        sentence="The transport moves only the bytes that a view shows, not the whole storage behind it.",
        source="ray#65205",
        suffers="Sending one row takes as long and as much memory as sending the whole matrix.",
        applies=Applies.PARTS,
    ),
    Clause(
        "D8",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport returns tensors on the promised type of device and complete, also for work on another "
        "GPU stream than the one that received them.",
        source="doc TensorTransportMetadata; src rdt_manager.py set_target_device_for_ref; "
        "src rdt_store.py __ray_recv__",
        suffers="A kernel reads a tensor before its contents are there, and computes with leftovers.",
    ),
    Clause(
        "D8b",
        Area.INTEGRITY,
        Level.SHOULD,
        sentence="The transport returns tensors that are writable and contiguous.",
        source="src util.py create_empty_tensors_from_metadata",
        suffers="Code that worked on Ray's object store fails on its first update in place or flat view.",
        applies=Applies.WRITABLE,
    ),
    Clause(
        "D9",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport delivers what a kernel writes into the tensors that still runs, or waits, on the GPU's "
        "current stream when the transport is told to describe them.",
        source="src util.py set_nixl_cuda_stream; src cuda_ipc_transport.py extract_tensor_transport_metadata; "
        "src nixl_tensor_transport.py extract_tensor_transport_metadata",
        suffers="A task returns what its last kernel computes, and what arrives is the memory as it was before that.",
        applies=Applies.CUDA,
    ),
)
