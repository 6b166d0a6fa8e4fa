"""What one check found, as plain data.

A check writes a :class:`CheckResult`; the verdict, the report and the terminal only ever read these.
Everything here turns into JSON and back, because results travel in pytest's ``user_properties`` (the one channel
that also survives xdist) and lie in ``report.json``, from which a verdict can be judged again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["passed", "broken", "error", "not run"]
"""``passed``; ``broken``: a clause does not hold; ``error``: the check itself crashed, which is our fault and never the
transport's; ``not run``: the check applies but could not be exercised, `CheckResult.reason` says why."""


GONE = "the failure did not come back"
"""How the reason begins of a check that was to show one again."""


@dataclass(frozen=True)
class Step:
    """One line of a history, oldest first.

    `at` is in seconds since the history began. `obj_id` is shortened to what tells the objects of one history apart.
    `ended` is None for a call that never came back.
    """

    number: int
    at: float
    process: str
    lane: str
    what: str
    obj_id: str = ""
    ended: float | None = None
    outcome: str = ""


@dataclass(frozen=True)
class Twin:
    """An example of the same check that went well, as near to the failing one as any: what makes the difference?"""

    example: tuple[str, ...] = ()
    history: tuple[Step, ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Twin:
        """Read one out of `CheckResult.to_json`."""
        return cls(tuple(data["example"]), tuple(Step(**step) for step in data["history"]))


@dataclass(frozen=True)
class Failure:
    """One broken clause: a sentence, the shortest history that shows it, and how to see it again."""

    clause: str
    happened: str
    """One plain sentence: what the transport did. The register holds what the contract asks."""
    example: tuple[str, ...] = ()
    """The values that the check chose, one readable line each, already shrunk."""
    history: tuple[Step, ...] = ()
    error: str = ""
    """The transport's own exception with the author's frames only, where there was one."""
    stacks: str = ""
    """For a hang: where each stuck thread was."""
    crash: str = ""
    """What the processes, or threads, that ended by themselves wrote as they did."""
    flaky: bool = False
    """It failed once and not again on the same input: a race, or state left by earlier transfers."""
    replay: str = ""
    twin: Twin | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Failure:
        """Read one out of `CheckResult.to_json`."""
        return cls(
            **{
                **data,
                "example": tuple(data["example"]),
                "history": tuple(Step(**step) for step in data["history"]),
                "twin": Twin.from_json(data["twin"]) if data["twin"] else None,
            }
        )


@dataclass(frozen=True)
class Series:
    """What one process held of one kind, over time."""

    process: str
    kind: str
    """As in `rdt_conformance.observe.Resources.counts`; its name ends with ``bytes`` if it does not come in pieces."""
    points: tuple[tuple[float, int], ...]
    """Seconds since the check began, and how much there was, while the process was at rest."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Series:
        """Read one out of `CheckResult.to_json`."""
        return cls(data["process"], data["kind"], tuple((at, figure) for at, figure in data["points"]))


@dataclass
class CheckResult:
    """What one check found on one engine."""

    name: str
    """The test function's name; unique over all suites."""
    engine: str
    clauses: tuple[str, ...]
    """Every clause that the check can decide."""
    outcome: Outcome
    seen: tuple[str, ...] = ()
    """The clauses that were really exercised: the situation they speak of did arise."""
    failures: tuple[Failure, ...] = ()
    reason: str = ""
    examples: int = 0
    transfers: int = 0
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    """What was observed and has no verdict (snapshot or live memory, copies or shared, …)."""
    series: tuple[Series, ...] = ()
    """What was measured over time, to be drawn."""

    def to_json(self) -> dict[str, Any]:
        """The result as JSON-ready data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CheckResult:
        """Read what `to_json` wrote.

        Raises:
            TypeError: a field is missing or unknown.
        """
        return cls(
            **{
                **data,
                "clauses": tuple(data["clauses"]),
                "seen": tuple(data["seen"]),
                "failures": tuple(map(Failure.from_json, data["failures"])),
                "series": tuple(map(Series.from_json, data.get("series", ()))),  # in reports of a soak only
            }
        )
