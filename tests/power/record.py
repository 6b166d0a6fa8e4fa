"""What is kept of the runs: ``reports/power.json``, which goes along with every release."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

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
    text: str = ""
    """What `faulty_runs.text_of` it was when they were made."""
    hits: list[bool] = field(default_factory=list)
    """Whether each run, in the order of its seeds from 1, said that the clause is broken; of a good transport, that any
    is."""
    seconds: list[float] = field(default_factory=list)
    """How long each took, its start and its report included."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What there is one tally of."""
        return self.target, self.profile, self.engine


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
