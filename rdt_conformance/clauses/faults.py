"""Processes that die or stop, errors in the middle, metadata that cannot be trusted."""

from __future__ import annotations

from rdt_conformance.contract_types import EVERYWHERE, PROCESSES, REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "R1",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport ends a transfer whose source is killed, before or during it, in bounded time with an "
        "error or the exact data, and the receiver goes on.",
        source="ray#56783; doc direct-transport.md#error-handling",
        suffers="The death of one actor hangs or takes down all that wanted something from it.",
        why="Actors die. Ray learns of it and aborts the transfers that it monitors; in a get the receiver is on its "
        "own until the timeout.",
        fix="Notice the end of the source: a closed connection, a process that is gone. Raise then, and forget what "
        "you knew of that peer, and of no other.",
        applies=Applies.ABORTABLE,
        engines=PROCESSES,
    ),
    Clause(
        "R2",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport keeps the source and the other receivers working when a receiver is killed in the "
        "middle, and a new receiver gets the same object.",
        source="nixl#1983; doc direct-transport.md#error-handling",
        suffers="One crashed worker makes the source useless for all the others.",
        why="A receiver that dies says no goodbye. Its source is not told by Ray.",
        fix="Treat a broken connection as the end of that transfer alone. Serve receivers apart, with a timeout on "
        "what waits for them, and release what was kept for the dead one.",
        applies=Applies.ONE_SIDED_OR_ABORTABLE,
        engines=PROCESSES,
    ),
    Clause(
        "R3",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport answers a source that is paused for a while with a timeout or a late success, and "
        "works on afterwards.",
        source="doc TensorTransportManager.wait_fetch_complete; doc direct-transport.md#error-handling",
        suffers="A machine that was busy for some seconds has to be taken out of the job.",
        why="A process that is stopped, swapped out or starved keeps its connections open and says nothing.",
        fix="Bound every wait, and take a timeout for an error of this transfer, not for the death of the peer. What "
        "comes late must not be taken for the answer to a later question.",
        engines=PROCESSES,
    ),
    Clause(
        "R4",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport lets an error in send_multiple_tensors or recv_multiple_tensors reach the consumer as "
        "an exception, without a hang.",
        source="ray#56513; src rdt_store.py __ray_recv__; src rdt_manager.py _monitor_failures",
        suffers="A transfer that failed at once is only noticed as a timeout, or never.",
        why="Ray stores an exception of the receive as the object's value, and the consumer raises it. An exception of "
        "the send ends the transfer through the owner.",
        fix="Raise; do not log and return, and do not return fewer tensors. When a send fails, close the connection, "
        "so that the receiver does not wait for data that never come.",
        engines=EVERYWHERE,
    ),
    Clause(
        "R5",
        Area.FAULTS,
        Level.SHOULD,
        sentence="The transport leaves no shared memory, no files and no processes of its own on the machine when the "
        "actors have ended.",
        source="doc TensorTransportManager.garbage_collect",
        suffers="The machine fills up with the remains of earlier jobs until it has to be restarted.",
        why="Actors are often killed, and no finalizer runs then.",
        fix="Prefer what the kernel cleans up with the last process: memfd_create, unlinked files, abstract sockets. "
        "Else keep all in one place that the next process can recognize and clear.",
        engines=PROCESSES,
    ),
    Clause(
        "R6",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport answers truncated, foreign or garbled metadata with an error, never with a crash or "
        "with other memory.",
        source="src rdt_store.py __ray_recv__; doc direct-transport.md#error-handling",
        suffers="One damaged message kills the process or hands out memory that nobody meant to share.",
        why="Metadata pass through the owner and are unpickled by others. A receive is where they are trusted.",
        fix="Check the type of the metadata, the ranges of numbers, and that sizes fit shapes and dtypes, before you "
        "allocate, map or read. Let the source verify what it is asked for.",
        engines=REFERENCE,
    ),
    Clause(
        "R7",
        Area.FAULTS,
        Level.SHOULD,
        sentence="The transport lets no other user of the machine read the data, through files, shared memory or "
        "listening sockets.",
        source="doc direct-transport.md",
        suffers="Anybody with an account on the machine can copy the model.",
        why="Ray does not say how data are to be protected. Machines have more than one user, and networks more than "
        "one machine.",
        fix="Create files and segments with mode 0600. Listen on the interface that is needed, and ask for a secret "
        "that travelled in the metadata.",
        engines=PROCESSES,
    ),
    Clause(
        "R8",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport carries tensors exactly from one node to another, or refuses to with an error, in "
        "bounded time.",
        source="doc direct-transport.md#error-handling; src rdt_store.py __ray_recv__; src rdt_manager.py "
        "_monitor_failures",
        suffers="A job that works on one machine hangs, or computes with other numbers, on two.",
        why="Ray places actors on any node, and does not compare those of source and destination before it starts a "
        "transfer.",
        fix="Put into the metadata where the source is, such as a host's boot id, and raise an error on the receiver "
        "if that is not here. A path, an address or a process id may exist there too, and mean something else.",
        applies=Applies.SEVERAL_NODES,
        engines=PROCESSES,
    ),
    Clause(
        "R9",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport carries GPU memory exactly between processes that share a GPU and between those that "
        "have one each, or refuses to with an error, in bounded time.",
        source="src cuda_ipc_transport.py recv_multiple_tensors; doc direct-transport.md#error-handling; "
        "src rdt_store.py __ray_recv__",
        suffers="A job that works on one GPU hangs, or computes with other numbers, on two; or the other way round.",
        why="Ray gives each actor its own view of the GPUs: cuda:0 is another card in another process, and two actors "
        "may share one.",
        fix="Name a GPU by its UUID in the metadata and not by its index. Where the transport works within one GPU "
        "only, or only between two, compare, and raise an error on the receiver.",
        applies=Applies.CUDA,
        engines=PROCESSES,
    ),
    Clause(
        "R10",
        Area.FAULTS,
        Level.MUST,
        sentence="The transport gives back everything that a fetch used which failed.",
        source="doc TensorTransportManager.wait_fetch_complete; src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="A long job that gets over the loss of an actor now and then runs out of memory or sockets after days.",
        why="Ray raises the error and drops the request. It calls nothing else for a fetch that failed.",
        fix="Close and release on the way out of the fetch whatever it raises, and keep nothing that only success "
        "takes out again. What is kept of an error must not keep the tensors.",
        applies=Applies.ONE_SIDED,
        engines=REFERENCE,
    ),
    Clause(
        "R11",
        Area.FAULTS,
        Level.SHOULD,
        sentence="The transport serves other receivers while one of them stands still in the middle of its transfer.",
        source="doc direct-transport.md#error-handling; src rdt_manager.py _monitor_failures",
        suffers="One receiver that is stopped, swapped out or stuck makes transfers to all the others time out.",
        why="Where the source has no call to make, Ray does not know what it is busy with, and lets any number of "
        "receivers ask it at once.",
        fix="Serve receivers apart, each on a thread of its own or with sockets that do not block. Do not hold a lock "
        "while you write to one of them.",
        applies=Applies.ONE_SIDED,
        engines=PROCESSES,
    ),
)
