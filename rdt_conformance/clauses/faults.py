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
        applies=Applies.CUDA,
        engines=PROCESSES,
    ),
)
