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
        why="Ray puts what the transport returns into the value without a look at it. Nothing else would notice a "
        "wrong byte.",
        fix="Move bytes, not numbers: view the contiguous tensor as uint8 and keep shape and dtype apart. Loop until "
        "all bytes have come, as sockets and files give less than was asked for. Think of zero elements, zero "
        "dimensions and sizes over 2 GiB.",
    ),
    Clause(
        "D2",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport delivers as many tensors as were sent, in the same order.",
        source="src rdt_store.py __ray_recv__; src serialization.py serialize_rdt_objects",
        suffers="The tensors of a nested value come back in each other's place.",
        why="Ray replaces each tensor of a nested value by its number, and puts tensor number n of the received list "
        "back in that place.",
        fix="Return a list with one entry for each entry of tensor_meta, in that order, also if transfers of single "
        "tensors complete in another order or two entries are alike.",
    ),
    Clause(
        "D3",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport delivers any view of a tensor, such as a strided, transposed, expanded or overlapping "
        "one, as an equal tensor, or refuses it.",
        source="doc TensorTransportMetadata; ray#61122; ray#60999; "
        "src nixl_tensor_transport.py extract_tensor_transport_metadata",
        suffers="A slice or a transposed tensor silently arrives with the contents of its neighbours, or not at all.",
        why="A tensor is a window on a storage: offset, shape and strides. Ray passes views on as they are, and only "
        "shape and dtype are in the base metadata.",
        fix="Take tensor.contiguous() before you take bytes or an address, and remember that it copies only if it has "
        "to. Registering in place is right only for tensors that are contiguous; count from data_ptr(), not from the "
        "beginning of the storage.",
    ),
    Clause(
        "D4",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport leaves the source's tensors unchanged by any transfer.",
        source="doc direct-transport.md#object-mutability",
        suffers="A model's weights change because somebody received them.",
        why="The source goes on with its tensors while others receive them, and more receivers may come.",
        fix="Treat the source's memory as read-only during a transfer. Scale, swap bytes or compress in a buffer of "
        "your own.",
    ),
    Clause(
        "D5",
        Area.INTEGRITY,
        Level.MUST,
        sentence="Where the transport delivers copies, each receive brings its own, and writing into one changes no "
        "other.",
        source="src rdt_store.py add_object; ray#54808; ray#55628",
        suffers="One consumer's update in place shows up in another consumer's tensor.",
        why="A receiver owns what it received and may update it in place. In Ray's store each arrival is an object of "
        "its own.",
        fix="Allocate new tensors for every receive. Do not cache results by object, and do not hand the same staging "
        "buffer to two receivers.",
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
        why="Both are allowed. With CUDA IPC, for one, a receiver maps the memory of the source.",
        fix="Nothing has to be fixed. Tell your users which of the two it is, as the report does.",
        applies=Applies.WRITABLE,
    ),
    Clause(
        "D6",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport leaves tensors that it delivered earlier unchanged when it delivers later ones.",
        source="doc TensorTransportManager.garbage_collect; doc TensorTransportManager.recv_multiple_tensors",
        suffers="A batch that was received before changes while it is being used.",
        why="Ray does not tell a transport when a receiver is done with its tensors. They belong to the user for as "
        "long as the user keeps them.",
        fix="Never receive into memory that was handed out before. Copy out of a pooled or ring buffer before you "
        "return, or let the memory return to the pool only when the tensors are garbage.",
    ),
    Clause(
        "D7",
        Area.INTEGRITY,
        Level.SHOULD,
        sentence="The transport moves only the bytes that a view shows, not the whole storage behind it.",
        source="ray#65205",
        suffers="Sending one row takes as long and as much memory as sending the whole matrix.",
        why="A small slice keeps a reference to its whole storage, and pickling or registering by storage takes all of "
        "it along.",
        fix="Send numel() * element_size() bytes from data_ptr(), or the bytes of tensor.contiguous(). torch.save and "
        "pickle write the whole storage, so clone the view first.",
        applies=Applies.PARTS,
    ),
    Clause(
        "D8",
        Area.INTEGRITY,
        Level.MUST,
        sentence="The transport returns tensors on the promised type of device and complete, also for work on another "
        "GPU stream than the one that received them; no kernel that waited before writes over them.",
        source="doc TensorTransportMetadata; src rdt_manager.py set_target_device_for_ref; "
        "src rdt_store.py __ray_recv__; nixl#730",
        suffers="A kernel reads a tensor before its contents are there, and computes with leftovers.",
        why="The consumer uses the tensors as soon as it has them, on any stream. And torch hands out memory to which "
        "a kernel of the same stream is still to write: what does not wait for it is written over.",
        fix="Allocate on the promised device. Before you write by anything but the current stream, wait for that "
        "stream. Before you return, synchronize the stream that the copy runs on; that the current stream alone waits "
        "for it is not enough.",
    ),
    Clause(
        "D8b",
        Area.INTEGRITY,
        Level.SHOULD,
        sentence="The transport returns tensors that are writable and contiguous.",
        source="src util.py create_empty_tensors_from_metadata",
        suffers="Code that worked on Ray's object store fails on its first update in place or flat view.",
        why="Ray's own helper allocates with torch.empty, which gives writable and contiguous tensors. Users get used "
        "to it.",
        fix="Receive into torch.empty, or into a bytearray under torch.frombuffer. A tensor over bytes or over a "
        "read-only mapping cannot be written to.",
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
        why="Kernels run after the call that starts them has returned. Ray describes the result of a task as soon as "
        "its Python code ends, with the kernels still on their way.",
        fix="In extract_tensor_transport_metadata record an event on torch.cuda.current_stream(device) and let the "
        "transfer wait for it, or synchronize that stream. The default stream is not always the current one.",
        applies=Applies.CUDA,
    ),
)
