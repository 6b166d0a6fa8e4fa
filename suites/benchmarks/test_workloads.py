"""What people do with RDT: weight sync, handing over a KV cache, and more than one thing at a time."""

from __future__ import annotations

from rdt_conformance.bench.cells import Cell, benchmark, tensors
from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.run import Arena

LAYER = ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536), (576,), (576,))
"""A layer of SmolLM-135M: query, key, value, output, gate, up, down, and two norms. The model has thirty."""
WEIGHTS = LAYER * 10
SYNCED = Load(WEIGHTS, ("bfloat16",) * len(WEIGHTS), buffers=True)

FOUR_KIB, SIXTY_FOUR_KIB = 4 << 10, 64 << 10
IN_FLIGHT = [Cell(f"{count} x 64 KiB", tensors(SIXTY_FOUR_KIB * count, count).load, count) for count in (1, 8, 64)]


@benchmark(
    full=[
        Cell("10 layers to 1 receiver", SYNCED),
        Cell("10 layers to 2 receivers", SYNCED, pattern="to several"),
    ]
)
def test_weight_sync(arena: Arena, cell: Cell) -> None:
    """Many tensors of a real model's shapes, again and again, into the tensors that are already there."""
    arena.measure(cell)


@benchmark(
    full=[
        tensors(16 << 20, 4096),
        tensors(32 << 20, 1024),
        tensors(32 << 20, 512),
    ]
)
def test_kv_blocks(arena: Arena, cell: Cell) -> None:
    """Blocks of 4, 32 and 64 KiB, as paged attention keeps them, each a tensor of its own."""
    arena.measure(cell)


@benchmark(full=IN_FLIGHT, quick=IN_FLIGHT)
def test_pipelined_gets(arena: Arena, cell: Cell) -> None:
    """Several objects in one get: all fetches begin before the first is waited for."""
    arena.measure(cell)


@benchmark(full=[tensors(size, pattern="both ways") for size in (SIXTY_FOUR_KIB, 16 << 20)])
def test_both_directions(arena: Arena, cell: Cell) -> None:
    """Two processes exchange objects: each is source and receiver at once."""
    arena.measure(cell)


@benchmark(full=[tensors(FOUR_KIB, pattern="under bulk")])
def test_small_under_bulk(arena: Arena, cell: Cell) -> None:
    """Something small should not have to wait for something large."""
    arena.measure(cell)
