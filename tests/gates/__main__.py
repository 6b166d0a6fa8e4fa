"""How often the gate on speed is right: what it says of transports that are worse by a known amount, or not at all.

    python -m tests.gates --runs=100

One gate in two has a busy loop beside it. Slowness is planted as a busy wait for each byte, measured anew before each
gate as a share of what the transport itself takes just then. Writes every gate into ``reports/gates.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rdt_conformance.bench import gate
from rdt_conformance.bench.cells import tensors
from rdt_conformance.bench.contests import Contests
from rdt_conformance.bench.results import CellResult
from rdt_conformance.bench.statistics import Verdict, floor
from rdt_conformance.target import resolve
from tests.gates.planted import SECONDS_PER_BYTE

PLANTED = Path(__file__).with_name("planted.py")
RECORD = Path(__file__).parents[2] / "reports" / "gates.json"
SLOW = {"SlowInline": ("inline", 64 << 10), "SlowSharedMemory": ("shared-memory", 1 << 20)}
SLOW |= {"SlowCrossMemory": ("cross-memory", 4 << 20), "SlowTcp": ("tcp", 1 << 20)}
COUNTED = {"copies": ("CopiesOnceMore", "cross-memory", 16 << 20)}
COUNTED |= {"metadata bytes": ("DescribesTwice", "shared-memory", 1 << 20)}
_GATES_OF_A_PAIR = 10
"""Then new processes are started: where the system lets them run is a matter of chance too."""


@dataclass(frozen=True)
class Gate:
    """What one gate has said."""

    plant: str
    transport: str
    nbytes: int
    loaded: bool
    verdict: str
    """Of what was planted: the time, or the counter."""
    floor: float
    """What two that are the same may differ by just then, as a share."""
    words: str


class Gates:
    """Gates of one transport and plant.

    Args:
        folder: for the file that tells planted transports how slow to be.
        seconds: see `Contests`.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._per_byte = folder / "seconds_per_byte"
        self._seconds = seconds
        os.environ[SECONDS_PER_BYTE] = str(self._per_byte)
        self._per_byte.write_text("0")

    def slow(self, name: str, share: float, runs: int) -> Iterator[Gate]:
        """Time, with so much of it planted; 0: the transport against itself."""
        plain, nbytes = SLOW[name]
        spec = f"{PLANTED}:{name}" if share else plain
        for loaded, contests in self._contests(spec, plain, runs):
            if share:
                self._per_byte.write_text("0")
                took = contests.measure("calibration", tensors(nbytes, 1)).row("baseline")
                assert took is not None and took.median is not None, "the transport could not be measured"
                self._per_byte.write_text(repr(share * took.median / nbytes))
            yield _gate(f"{100 * share:g} %", plain, loaded, contests.measure("gate", tensors(nbytes, 1)), "time")

    def counted(self, counter: str, runs: int) -> Iterator[Gate]:
        """A counter, of one that does more than the transport that it is made of."""
        name, plain, nbytes = COUNTED[counter]
        for loaded, contests in self._contests(f"{PLANTED}:{name}", plain, runs):
            yield _gate(counter, plain, loaded, contests.measure("gate", tensors(nbytes, 1)), counter)

    def _contests(self, spec: str, against: str, runs: int) -> Iterator[tuple[bool, Contests]]:
        target = resolve(spec)
        for first in range(0, runs, _GATES_OF_A_PAIR):
            contests = Contests(target, (), against, gated=True, seconds=self._seconds, seed=first, bench=_no_bench)
            try:
                for number in range(first, min(runs, first + _GATES_OF_A_PAIR)):
                    with _load() if number % 2 else nullcontext():
                        yield bool(number % 2), contests
            finally:
                contests.close()


def _no_bench(engine: str) -> Any:
    raise AssertionError("no whole RDT is measured here")


def _gate(plant: str, transport: str, loaded: bool, result: CellResult, what: str) -> Gate:
    own, baseline, again = (result.row(role) for role in ("transport", "baseline", "again"))
    assert own and baseline and again and not own.problem, own and own.problem
    found = {each.what: each for each in gate.against(result)}
    said = found.get(what)
    verdict = said.verdict if said else Verdict.SAME
    words = said.words if said else ""
    return Gate(plant, transport, result.nbytes, loaded, verdict.value, floor(again.samples, baseline.samples), words)


@contextmanager
def _load() -> Iterator[None]:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def main() -> None:
    """Run the gates that are asked for, tell each, and put all on record."""
    parser = argparse.ArgumentParser(prog="python -m tests.gates", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="of each plant, all transports together")
    parser.add_argument("--plants", default="0,3,10,20,copies,metadata bytes", help="per cent, or counters")
    parser.add_argument("--seconds", type=float, default=1.5, help="each measurement of a gate")
    options = parser.parse_args()
    done: list[Gate] = []
    with tempfile.TemporaryDirectory() as folder:
        gates = Gates(Path(folder), options.seconds)
        for plant in options.plants.split(","):
            for gate_ in _of(gates, plant, options.runs):
                done.append(gate_)
                print(*asdict(gate_).values(), flush=True)
    RECORD.write_text(json.dumps([asdict(gate_) for gate_ in done], indent=0) + "\n")
    for key, times in sorted(
        Counter((g.plant, g.verdict, "floor < 8 %" if g.floor < 0.08 else "") for g in done).items()
    ):
        print(*key, times)


def _of(gates: Gates, plant: str, runs: int) -> Iterator[Gate]:
    if plant in COUNTED:
        yield from gates.counted(plant, runs)
        return
    for name in SLOW:
        yield from gates.slow(name, float(plant) / 100, -(-runs // len(SLOW)))


if __name__ == "__main__":
    main()
