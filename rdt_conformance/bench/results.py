"""What came of a cell, as plain data: for the table, the report and the gate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rdt_conformance.bench.loop import STAGES, Series
from rdt_conformance.bench.statistics import Interval, Verdict, percentile, ratio

PERCENTS = (50, 90, 99, 99.9)
BETWEEN_GPUS = " between GPUs"
"""What the name of a cell, or of a run of such cells, says if source and receiver have different ones."""

Role = Literal["transport", "ceiling", "peer", "baseline", "again"]
"""What a contender is there for: it is the transport under test, a limit of the machine, another transport to look at,
one that the transport is held against, or the same as the one before it, which shows what noise can do."""


@dataclass
class Row:
    """One contender in one cell. Times are in seconds."""

    name: str
    role: Role
    problem: str = ""
    """Why there are no numbers."""
    verified: int = 0
    """Cycles whose every byte was compared."""
    pairs: int = 0
    median: float = 0.0
    percentiles: dict[str, float] = field(default_factory=dict)
    """Those that enough samples lie beyond."""
    goodput: float = 0.0
    """Bytes of payload in a second, at the median."""
    cold: float = 0.0
    """The first use, at the median of the epochs."""
    cold_extract: float = 0.0
    """The part of the source in it: registration."""
    stages: dict[str, float] = field(default_factory=dict)
    """The median of each."""
    cpu_per_gib: float = 0.0
    """Seconds of processor time, of both processes."""
    counters: dict[str, float] = field(default_factory=dict)
    speed: Interval | None = None
    """How many times as fast the transport under test is."""
    samples: list[float] = field(default_factory=list)
    """In the order of time; what is compared is `loop.Sample.ready`."""


@dataclass(frozen=True)
class Change:
    """How many times as long the transport takes as what it is held against."""

    by: str
    """The contender that both were measured beside, if they were not in the same run."""
    slower: Interval
    floor: float
    """What may be found between two that are the same, as a share."""

    @property
    def seems_different(self) -> bool:
        """Whether the middle lies beyond the floor, whatever the interval."""
        return not 1 / (1 + self.floor) <= self.slower.middle <= 1 + self.floor


@dataclass(frozen=True)
class Finding:
    """What a comparison says of one quantity of a cell."""

    what: str
    verdict: Verdict
    words: str
    changes: tuple[Change, ...] = ()
    """What it says so by, where times were compared."""

    def __str__(self) -> str:
        return f"{self.what} {self.verdict.value}: {self.words}"


@dataclass
class CellResult:
    """One cell on one engine."""

    benchmark: str
    cell: str
    engine: str
    nbytes: int
    tensors: int
    buffers: bool
    rows: list[Row] = field(default_factory=list)
    why_not: str = ""
    """Why it was not measured at all."""
    objects: int = 1
    """The tensors are spread over so many, which are in flight together."""
    findings: list[Finding] = field(default_factory=list)
    """What it was held against says of it."""
    apart: bool = False
    """Source and receiver had different GPUs."""

    @property
    def key(self) -> str:
        """What tells it from the others of a run."""
        return f"{self.benchmark}[{self.engine}-{self.cell}]"

    def row(self, role: Role) -> Row | None:
        """The first contender of that role, if there is one."""
        return next((row for row in self.rows if row.role == role), None)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON-ready data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CellResult:
        """Read what `to_json` wrote."""
        rows = [Row(**{**row, "speed": Interval(**row["speed"]) if row["speed"] else None}) for row in data["rows"]]
        return cls(**{**data, "rows": rows, "findings": [_finding(told) for told in data["findings"]]})


def _finding(data: dict[str, Any]) -> Finding:
    changes = tuple(Change(**{**change, "slower": Interval(**change["slower"])}) for change in data["changes"])
    return Finding(**{**data, "verdict": Verdict(data["verdict"]), "changes": changes})


def summarize(name: str, role: Role, series: Series, own: Series, nbytes: int, seed: int) -> Row:
    """What a table can show of a contender.

    Args:
        name: the contender's.
        role: what it is there for.
        series: what was measured of it.
        own: what was measured of the transport under test in the same turns.
        nbytes: of the payload.
        seed: of the resampling.
    """
    if series.problem:
        return Row(name, role, problem=series.problem)
    samples, median = series.ready, float(np.median(series.ready))
    found = {str(percent): percentile(samples, percent) for percent in PERCENTS}
    return Row(
        name=name,
        role=role,
        verified=series.verified,
        pairs=len(samples),
        median=median,
        percentiles={name: value for name, value in found.items() if value is not None},
        goodput=nbytes / median,
        cold=float(np.median([sample.ready for sample in series.cold])),
        cold_extract=float(np.median([sample.extract for sample in series.cold])),
        stages={stage: float(np.median([getattr(sample, stage) for sample in series.samples])) for stage in STAGES},
        cpu_per_gib=float(np.median([sample.cpu for sample in series.samples])) / nbytes * 2**30,
        counters=series.counters,
        speed=ratio(samples, own.ready, seed) if series is not own and not own.problem else None,
        samples=[round(sample, 9) for sample in samples],
    )
