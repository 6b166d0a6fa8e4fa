"""What is kept of the runs: ``reports/power.json``, which goes along with every release."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rdt_conformance.coverage import all_checks
from rdt_conformance.paths import data_folder

PATH = data_folder("reports") / "power.json"


@dataclass
class Tally:
    """How one transport fared in runs that differ only by their seed."""

    target: str
    """A faulty transport, or a good one, as on the command line."""
    profile: str
    engine: str
    clause: str = ""
    """The one that it breaks; empty for a good one."""
    sources: str = ""
    """Stands for the text of the faulty transport and of the checks that shall catch it: other text, other numbers."""
    hits: list[bool] = field(default_factory=list)
    """Whether each run, in the order of its seeds from 1, said that the clause is broken; of a good transport, that any
    is."""
    seconds: list[float] = field(default_factory=list)
    """How long each took, its start and its report included."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What there is one tally of."""
        return self.target, self.profile, self.engine


def sources_of(transport: type[Any], clause: str) -> str:
    """The `Tally.sources` of a faulty transport that breaks this clause."""
    bodies = [inspect.getsource(check.body) for check in all_checks() if clause in check.clauses]
    return hashlib.sha256("\0".join([inspect.getsource(transport), *bodies]).encode()).hexdigest()[:16]


def load(path: Path = PATH) -> dict[tuple[str, str, str], Tally]:
    """What is on record."""
    if not path.exists():
        return {}
    tallies = [Tally(**entry) for entry in json.loads(path.read_text())["tallies"]]
    return {tally.key: tally for tally in tallies}


def save(tallies: dict[tuple[str, str, str], Tally], path: Path = PATH) -> None:
    """Put it on record, one line for each so that a change is easy to read."""
    lines = ",\n".join(json.dumps(asdict(tallies[key])) for key in sorted(tallies))
    path.write_text(f'{{"tallies": [\n{lines}\n]}}\n')
