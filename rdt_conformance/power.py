"""How likely the suite catches what is wrong: the record of its runs on transports of which that is known.

``reports/power.json`` goes along with every release; ``make power`` makes the runs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from rdt_conformance.paths import data_folder

FILE_NAME = "power.json"

PART = "a sixth of quick"
"""The profile of short runs on good transports: of a run of quick, a sixth of the checks, others with each seed."""


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
    """Stands for the text of the faulty transport and of the checks that shall catch it: other text, other chances."""
    hits: list[bool] = field(default_factory=list)
    """Whether each run, in the order of its seeds from 1, said that the clause is broken; of a good transport, that any
    is."""
    seconds: list[float] = field(default_factory=list)
    """How long each took, its start and its report included."""

    @property
    def summary(self) -> dict[str, Any]:
        """As it is shown."""
        return {
            "profile": self.profile,
            "engine": self.engine,
            "runs": len(self.hits),
            "hits": sum(self.hits),
            "seconds": median(self.seconds),
        }

    @property
    def key(self) -> tuple[str, str, str]:
        """What there is one tally of."""
        return self.target, self.profile, self.engine


def load() -> dict[tuple[str, str, str], Tally]:
    """What is on record."""
    text = (data_folder("reports") / FILE_NAME).read_text(encoding="utf-8")
    tallies = [Tally(**entry) for entry in json.loads(text)["tallies"]]
    return {tally.key: tally for tally in tallies}


def save(tallies: dict[tuple[str, str, str], Tally]) -> None:
    """Put it on record, one line for each so that a change is easy to read."""
    path = data_folder("reports") / FILE_NAME
    lines = ",\n".join(json.dumps(asdict(tallies[key])) for key in sorted(tallies) if tallies[key].hits)
    path.write_text(f'{{"tallies": [\n{lines}\n]}}\n')
