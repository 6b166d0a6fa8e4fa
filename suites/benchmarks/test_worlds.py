"""What RDT itself costs, on every engine: it comes on top of what the transport takes."""

from __future__ import annotations

from rdt_conformance.bench.cells import Cell, benchmark, tensors
from rdt_conformance.bench.run import Arena


@benchmark(full=[tensors(size, pattern="whole rdt") for size in (4, 1 << 20, 16 << 20)])
def test_whole_rdt(arena: Arena, cell: Cell) -> None:
    """From the task that returns tensors to the task that has them; also by a get, and through the object store."""
    arena.measure(cell)
