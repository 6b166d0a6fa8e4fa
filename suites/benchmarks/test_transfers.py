"""How long a transfer takes: by its bytes, by the number of its tensors, and the first time."""

from __future__ import annotations

from rdt_conformance.bench.cells import Cell, benchmark, tensors
from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.run import Arena
from rdt_conformance.words import in_bytes

SIZES = (4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
COUNTS = (1, 10, 100, 1_000, 10_000)
TOGETHER = 16 << 20
OF_GPUS = (256 << 20, 1 << 30)
"""What takes seconds in a machine's memory is what models move between GPUs."""
BETWEEN_GPUS = (64 << 20, *OF_GPUS)


@benchmark(
    full=[tensors(size) for size in SIZES]
    + [tensors(size, device="cuda") for size in OF_GPUS]
    + [tensors(size, device="cuda", apart=True) for size in BETWEEN_GPUS],
    quick=[tensors(size) for size in (4, 64 << 10, 1 << 20, 16 << 20)],
)
def test_single_tensor(arena: Arena, cell: Cell) -> None:
    """The time goes from a fixed price to one by the byte."""
    arena.measure(cell)


@benchmark(full=[Cell(in_bytes(size), flat(size, buffers=True)) for size in (1 << 20, TOGETHER, 64 << 20)])
def test_into_buffers(arena: Arena, cell: Cell) -> None:
    """The receiver has memory already, and none has to be made for the first time."""
    arena.measure(cell)


@benchmark(
    full=[tensors(TOGETHER, count) for count in COUNTS],
    quick=[tensors(TOGETHER, count) for count in (100, 1_000)],
)
def test_number_of_tensors(arena: Arena, cell: Cell) -> None:
    """The same bytes in more and more tensors: descriptions and registrations often cost more than bytes."""
    arena.measure(cell)


@benchmark(full=[tensors(TOGETHER, count, epochs=30) for count in (1, 100, 1_000)])
def test_first_use(arena: Arena, cell: Cell) -> None:
    """A new transport in both processes, up to thirty times: registrations, connections, cold, beside what follows."""
    arena.measure(cell)
