"""Which entries of a file of deviations no longer tell the truth: each would hide the next thing that breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdt_conformance.contract_types import Applies
from rdt_conformance.deviations import ALL, Deviation, Deviations
from rdt_conformance.verdict_types import ClauseResult, Status
from rdt_conformance.words import listed

_BY_OPTION = (
    Applies.SEVERAL_NODES,
    Applies.CUDA,
    Applies.CUDA_TARGET_BUFFERS,
    Applies.TARGET_BUFFERS,
    Applies.WRITABLE,
    Applies.PARTS,
    Applies.CHOSEN_MEMORY,
)
"""Whether these speak of a transport depends on the options of a run: nodes, devices and data type."""


def stale(deviations: Deviations, clauses: Sequence[ClauseResult], selected_all: bool) -> Iterator[str]:
    """One line for each entry that has expired, or that this run shows to be wrong.

    An entry for an engine, or for a situation, that this run did not have says nothing; nor does, of a clause that
    holds, a run of picked checks, as another check may break it.

    Args:
        deviations: what the user's file lists.
        clauses: every clause on every engine, judged.
        selected_all: False if the user picked checks.
    """
    for entry in deviations.entries:
        if why := _why(entry, deviations, [r for r in clauses if entry.covers(r.clause.id, r.engine)], selected_all):
            yield f"{deviations.file}: {entry} {why}"


def _why(entry: Deviation, deviations: Deviations, results: Sequence[ClauseResult], selected_all: bool) -> str:
    if deviations.expired(entry):
        return f"was accepted until {entry.expires}; mend it, or give it a new day"
    if not results:
        return ""
    clause = results[0].clause
    bound = [r for r in results if r.status is not Status.NOT_APPLICABLE]
    if not bound:
        unbound = not any(r.elsewhere for r in results) and clause.applies not in _BY_OPTION
        return f"is only for {clause.applies.value}, which this is not; delete the entry" if unbound else ""
    if selected_all and all(r.status is Status.PASS for r in bound):
        or_where = ", or name the engine where it does not" if entry.engine == ALL else ""
        return f"holds again on {listed([r.engine for r in bound])}; delete the entry{or_where}"
    return ""
