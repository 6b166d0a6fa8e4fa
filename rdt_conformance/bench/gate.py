"""Whether a transport has become slower: against another one in the same run, or since an earlier report.

Against another one, times are compared pair by pair. Since an earlier report they are not, as no machine is ever the
same again: what is compared is how they relate to the machine's own limits and to peers, each of which was measured in
turn with the transport. Most of them have to say something, and the same. Even so the floor is higher: what else a
machine does slows down a transport, which waits for another process, more than a copy. Counters depend on no load and
are always compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rdt_conformance.bench.results import CellResult, Change, Finding, Row
from rdt_conformance.bench.statistics import LEAST_FLOOR, Interval, Verdict, floor, judge, ratio

ACROSS_RUNS = 0.3
"""The least floor between runs: so much the relations of one and the same transport have been seen to differ."""
COUNTERS = {"metadata_bytes": (1.1, 64), "copies": (1.1, 0.25)}
"""What a counter may be without being worse: so many times what it was, and so much more."""


def against(result: CellResult, seed: int = 0) -> list[Finding]:
    """Compare the transport with the one that it is held against. Nothing if one of them has no numbers."""
    own, baseline, again = result.row("transport"), result.row("baseline"), result.row("again")
    if not own or not baseline or not again or own.problem or baseline.problem or again.problem:
        return []
    slower = ratio(own.samples, baseline.samples, seed)
    change = Change("", slower, floor(again.samples, baseline.samples, seed))
    return [Finding("time", _judged(change), _in_words(change), (change,)), *_counters(own, baseline)]


def since(result: CellResult, earlier: CellResult, *, comparable: bool, seed: int = 0) -> list[Finding]:
    """Compare the transport with what an earlier report says of it.

    Args:
        result: of now.
        earlier: the same cell of the earlier report.
        comparable: both are from machines with the same fingerprint; else times are not judged.
        seed: of the resampling.
    """
    own, before = result.row("transport"), earlier.row("transport")
    if not own or not before or own.problem or before.problem:
        return []
    changes = _changes(result, earlier, seed) if comparable else ()
    words = "; ".join(map(_in_words, changes)) or "measured on another machine, not judged"
    return [Finding("time", _agreed([*map(_judged, changes)]), words, changes), *_counters(own, before)]


def _agreed(verdicts: Sequence[Verdict]) -> Verdict:
    """What most of them say, if none says anything else; those that say nothing have no veto."""
    said = [verdict for verdict in verdicts if verdict is not Verdict.INCONCLUSIVE]
    return said[0] if len(set(said)) == 1 and 2 * len(said) > len(verdicts) else Verdict.INCONCLUSIVE


def _changes(now: CellResult, earlier: CellResult, seed: int) -> tuple[Change, ...]:
    """How many times as long it takes, by each contender that both runs had."""
    changes = []
    least = max(ACROSS_RUNS, _own_floor(now, seed), _own_floor(earlier, seed))
    own = {row.name: row for row in now.rows if row.role in ("ceiling", "peer") and row.speed}
    for row in earlier.rows:
        then = row.speed if row.role in ("ceiling", "peer") else None
        if then is not None and row.name in own:
            changes.append(Change(row.name, _quotient(then, own[row.name].speed or then), least))
    return tuple(changes)


def _own_floor(result: CellResult, seed: int) -> float:
    own, again = result.row("transport"), result.row("again")
    if not own or not again or again.problem:
        return LEAST_FLOOR
    return floor(again.samples, own.samples, seed)


def _quotient(one: Interval, other: Interval) -> Interval:
    """What one is divided by the other, if their errors have nothing to do with each other."""
    middle = one.middle / other.middle
    below = math.hypot(math.log(one.middle / one.low), math.log(other.high / other.middle))
    above = math.hypot(math.log(one.high / one.middle), math.log(other.middle / other.low))
    return Interval(middle, middle * math.exp(-below), middle * math.exp(above), min(one.pairs, other.pairs))


def _judged(change: Change) -> Verdict:
    return judge(change.slower, change.floor)


def _in_words(change: Change) -> str:
    by = f" by {change.by}" if change.by else ""
    return f"{change.slower} times as long{by}, floor {100 * change.floor:.0f} %"


def _counters(own: Row, before: Row) -> list[Finding]:
    """Those that are not the same."""
    found = []
    for name, (times, more) in COUNTERS.items():
        if name not in own.counters or name not in before.counters:
            continue
        now, then = own.counters[name], before.counters[name]
        words = f"{now:.4g}, was {then:.4g}"
        if now > then * times + more:
            found.append(Finding(name.replace("_", " "), Verdict.WORSE, words))
        elif then > now * times + more:
            found.append(Finding(name.replace("_", " "), Verdict.BETTER, words))
    return found
