"""Many at once: threads in one transport, instances in one process, objects under way."""

from __future__ import annotations

from rdt_conformance.contract_types import Area, Clause, Level

CLAUSES = (
    Clause(
        "X1",
        Area.CONCURRENCY,
        Level.MUST,
        sentence="The transport works without error or corruption while task code, transfers, frees and aborts call "
        "it from different threads at once.",
        source="src rdt_store.py RDTStore; src actor.py _ray_system_error",
        suffers="A busy actor now and then fails in a way that nobody can reproduce.",
        why="A process has one instance, and four threads of Ray call it: the user's code describes and gets, "
        "_ray_system receives, sends and frees, _ray_system_error aborts, and the core worker frees what the driver "
        "put.",
        fix="Guard what is shared with a lock, and hold it for a few lines only, never while you wait for another "
        "process. Look for 'check, then act': lazily made connections, counters, dictionaries that one thread iterates "
        "over.",
    ),
    Clause(
        "X2",
        Area.CONCURRENCY,
        Level.SHOULD,
        sentence="Two instances of the transport in one process work independently of each other.",
        source="src util.py get_tensor_transport_manager",
        suffers="The transport cannot be registered under two names or be tested without a cluster.",
        why="Ray keeps instances by name and so builds two if a class is registered under two names.",
        fix="Keep state in the instance, not in the class or the module, and have names outside the process, as of "
        "files, differ as well, whatever the object's id. Where a library allows one use for each process, say so: "
        "needs_process=True in the transport's profile.",
        engines=frozenset({"local"}),
    ),
    Clause(
        "X3",
        Area.CONCURRENCY,
        Level.MUST,
        sentence="The transport stays exact with many receivers and many objects under way at the same time.",
        source="doc TensorTransportManager.recv_multiple_tensors; src rdt_manager.py fetch_and_get_rdt_objects",
        suffers="Contents are right in every test and wrong under load.",
        why="Each receive is independent for Ray. Nothing limits how many are under way at one source.",
        fix="Run the suite with --rdt-profile=thorough and look at what is shared among transfers: staging buffers, "
        "tags that wrap around, tables of requests, results handed over through one variable.",
    ),
)
