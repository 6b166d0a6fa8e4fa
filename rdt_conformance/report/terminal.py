"""The verdict as a section of pytest's terminal summary."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rdt_conformance.contract import Area, Level
from rdt_conformance.deviations import Deviation
from rdt_conformance.exposures import in_a_line
from rdt_conformance.report import paragraph, story
from rdt_conformance.results import GONE, Failure
from rdt_conformance.verdict import NOT_SELECTED, ClauseResult, Exit, Status, Verdict, worst
from rdt_conformance.words import count, few, listed, worded

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from rdt_conformance.target import Target

FULL_ENTRIES = 10
"""Broken clauses told at length, by area; the others get a line each, so that forty stay readable."""
NARROWEST, WIDEST = 80, 120
INDENT = 3
COLOURS: dict[Exit, dict[str, bool]] = {
    Exit.CONFORMANT: {"green": True, "bold": True},
    Exit.BROKEN: {"red": True, "bold": True},
    Exit.HARNESS_ERROR: {"red": True, "bold": True},
    Exit.INCONCLUSIVE: {"yellow": True, "bold": True},
}

_NOT_RUN = "not run"
"""What becomes of a clause that only another engine can decide."""

Line = tuple[str, dict[str, bool]]
"""Text without its line end, and the markup for the terminal."""


def write(
    verdict: Verdict,
    target: Target,
    terminalreporter: TerminalReporter,
    *,
    seed: int | str,
    report_path: Path | None,
    replayed: bool = False,
    nothing: bool = False,
    first: str = "",
) -> None:
    """Write the section ``rdt-conformance verdict``.

    Args:
        verdict: what to show.
        target: the transport that was judged.
        terminalreporter: pytest's; it knows whether the terminal has colours.
        seed: the seed of the run.
        report_path: where ``report.json`` lies; None if no report was written.
        replayed: one failure was shown again. Of a MUST pytest tells the whole story; of a SHOULD it is told here.
        nothing: no check was selected, and so there is not much to show.
        first: what has to be known before all that.
    """
    width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST) - 1
    terminalreporter.section("rdt-conformance verdict")
    if first:
        terminalreporter.write_line(first, yellow=True)
    sections: list[Iterable[Line]] = [
        _head(verdict, target, width, replayed),
        _hint(verdict, target, width),
        _area_table(verdict),
        _broken(verdict, Level.MUST, "red", width),
        _broken(verdict, Level.SHOULD, "yellow", width),
        _stories(verdict) if replayed else (),
        _deviations(verdict, width),
        _unmet(verdict, width),
        _harness_errors(verdict, width),
        _unknown(verdict, width, replayed),
        _facts(verdict, width),
        _exposure(verdict, width),
        _foot(verdict, width, seed, report_path),
    ]
    if nothing:
        sections = [_head(verdict, target, width, replayed), _unmet(verdict, width)]
    for number, lines in enumerate(filled for section in sections if (filled := list(section))):
        if number:
            terminalreporter.write("\n")
        for text, markup in lines:
            terminalreporter.write(f"{text}\n", **markup)


def _head(verdict: Verdict, target: Target, width: int, replayed: bool) -> Iterator[Line]:
    yield from _plain(textwrap.wrap(verdict.headline, width), **COLOURS[verdict.exit_status])
    broken = [row.clause.id for row in verdict.clauses if row.status is Status.FAIL]
    if replayed:
        yield _what_became(verdict, broken), {}
    if not verdict.partial:
        yield from _plain(textwrap.wrap(_level(verdict), width))
    yield from _plain(paragraph("transport", f"{target.spec} on {listed(verdict.engines)}", width))
    for fact in target.facts:
        if fact.name == "fits Ray":
            yield from _plain(paragraph("fits Ray", f"{fact.value} [{fact.learnt_from}]", width))


def _what_became(verdict: Verdict, broken: Sequence[str]) -> str:
    """What became of the failure that was to be shown again, in one line."""
    if broken:
        return f"the failure came back: {few(list(dict.fromkeys(broken)))} broken"
    by_reason = _by_reason([row for row in verdict.clauses if row.reason.startswith(GONE)])
    told = [f"{few(list(ids))}: {reason}" for reason, ids in by_reason.items()]
    return "; ".join(told) or "the failure could not be looked for: see below"


def _hint(verdict: Verdict, target: Target, width: int) -> Iterator[Line]:
    """What may be behind the failures of a transport of which the suite has not been told enough."""
    on_local = {row.clause.id: row for row in verdict.clauses if row.engine == "local" and row.status is Status.FAIL}
    if "X2" in on_local and any(row.clause.level is Level.MUST for row in on_local.values()):
        text = (
            "two instances in one process get into each other's way (X2), and on local all actors are in one process: "
            "if yours needs one of its own, which Ray gives it, say needs_process=True in a TransportProfile "
            "(docs/running.md), and see what is left"
        )
        yield from _plain(paragraph("hint:", text, width), yellow=True)
    failing = [row for row in verdict.clauses if row.status is Status.FAIL]
    late = [row for row in failing if row.clause.area is not Area.ABORT]  # what an abort ends has its own five seconds
    hung = [row.clause.id for row in late if any(failure.stacks for failure in row.failures)]
    if hung and not target.gives_up_after:
        text = (
            f"calls that take too long are taken for hangs ({few(list(dict.fromkeys(hung)))}): if yours give up by "
            "themselves, only later, say after how long by gives_up_after in a TransportProfile (docs/running.md)"
        )
        yield from _plain(paragraph("hint:", text, width), yellow=True)


def _level(verdict: Verdict) -> str:
    """The rung reached and what keeps the transport from the next one."""
    reached = f"level {verdict.level}" if verdict.level else "no level reached"
    if verdict.next_level is None:
        return reached
    ids_by_reason: dict[str, list[str]] = {}
    for obstacle in verdict.next_blocked_by:
        ids_by_reason.setdefault(obstacle.why, []).append(obstacle.clause)
    missing = "; ".join(f"{few(ids)} {why}" for why, ids in ids_by_reason.items())
    return f"{reached}; in the way of level {verdict.next_level}: {missing}"


def _area_table(verdict: Verdict) -> Iterator[Line]:
    """How the clauses of each area fared; one that ran on several engines counts once, with its worst status."""
    statuses = {area: Counter[Status | str]() for area in Area}
    for rows in verdict.by_clause().values():
        statuses[rows[0].clause.area][_NOT_RUN if _is_for_others(rows) else worst(rows)] += 1
    columns: dict[Status | str, str] = {
        Status.PASS: "pass",
        Status.FAIL: "fail",
        Status.UNKNOWN: "unknown",
        Status.NOT_APPLICABLE: "n.a.",
    }
    if any(counter[_NOT_RUN] for counter in statuses.values()):
        columns[_NOT_RUN] = _NOT_RUN
    if verdict.deviations:
        columns[Status.DEVIATION] = "listed"
    yield "area         " + "".join(f"{title:>9}" for title in columns.values()), {"bold": True}
    for area, counter in statuses.items():
        if counter:
            numbers = "".join(f"{counter[status] or '-':>9}" for status in columns)
            yield f"{area.value:<13}{numbers}", {"red": counter[Status.FAIL] > 0}


def _is_for_others(rows: Sequence[ClauseResult]) -> bool:
    """Whether only engines that were not asked for can decide a clause."""
    return all(row.elsewhere for row in rows)


def _broken(verdict: Verdict, level: Level, colour: str, width: int) -> Iterator[Line]:
    """The broken clauses of one level: the first ones at length, the others on one line each."""
    by_clause: dict[str, list[ClauseResult]] = {}
    for result in verdict.broken(level):
        by_clause.setdefault(result.clause.id, []).append(result)
    for number, rows in enumerate(by_clause.values()):
        if number < FULL_ENTRIES:
            yield from _full_entry(rows, verdict, colour, width)
        else:
            yield textwrap.shorten(_what_broke(rows, verdict), width, placeholder=" …"), {colour: True}


def _stories(verdict: Verdict) -> Iterator[Line]:
    for row in verdict.broken(Level.SHOULD):
        yield from _plain(story.render(_clearest([row])).splitlines())


def _full_entry(rows: Sequence[ClauseResult], verdict: Verdict, colour: str, width: int) -> Iterator[Line]:
    clause, failure = rows[0].clause, _clearest(rows)
    yield from _plain(
        textwrap.wrap(_what_broke(rows, verdict), width, subsequent_indent=" " * INDENT), **{colour: True}
    )
    yield from _plain(paragraph("contract:", clause.sentence, width, indent=INDENT, column=10))
    if failure.flaky:
        note = "a race: it broke once and not again on the same input"
        yield from _plain(paragraph("flaky:", note, width, indent=INDENT, column=10))
    if failure.replay:
        # Never wrapped: it is there to be copied.
        yield f"{' ' * INDENT}{'replay:':<10}{failure.replay}", {}


def _what_broke(rows: Sequence[ClauseResult], verdict: Verdict) -> str:
    clause = rows[0].clause
    where = _on([row.engine for row in rows], verdict)
    return f"{clause.id} {clause.level.value} broken{where}: {_clearest(rows).happened}"


def _clearest(rows: Sequence[ClauseResult]) -> Failure:
    return min((row.failures[0] for row in rows), key=lambda failure: (failure.flaky, len(failure.history)))


def _deviations(verdict: Verdict, width: int) -> Iterator[Line]:
    """What is broken and listed, apart from what is broken."""
    by_entry: dict[Deviation, list[ClauseResult]] = {}
    for result in verdict.deviations:
        if result.deviation is not None:
            by_entry.setdefault(result.deviation, []).append(result)
    if by_entry:
        yield "deviations, listed and accepted:", {"yellow": True}
    for entry, rows in by_entry.items():
        title = f"{entry.clause} {rows[0].clause.level.value} broken{_on([row.engine for row in rows], verdict)}:"
        yield from _plain(paragraph(title, rows[0].reason, width, indent=INDENT))
        accepted = f"{entry.reason} ({entry.link})"
        yield from _plain(paragraph(f"until {entry.expires}:", accepted, width, indent=2 * INDENT))
        hidden = [
            r for r in verdict.clauses if entry.clause in r.hidden_by and r.engine in {row.engine for row in rows}
        ]
        if hidden:
            ids = few(list(dict.fromkeys(r.clause.id for r in hidden)), 12)
            yield from _plain(paragraph("not looked at because of it:", ids, width, indent=2 * INDENT))


def _unmet(verdict: Verdict, width: int) -> Iterator[Line]:
    if verdict.unmet:
        yield "demands that are not met:", {"red": True}
    for line in verdict.unmet:
        yield from _plain(
            textwrap.wrap(line, width, initial_indent=" " * INDENT, subsequent_indent=" " * 2 * INDENT), red=True
        )


def _harness_errors(verdict: Verdict, width: int) -> Iterator[Line]:
    if verdict.harness_errors:
        yield "harness errors: our fault, not the transport's; please report them", {"red": True}
    alike: dict[str, list[str]] = {}
    for error in verdict.harness_errors:
        alike.setdefault(error.what, []).append(f"{error.check} on {error.engine}")
    for what, checks in alike.items():
        more = f" and {len(checks) - 1} more checks" if len(checks) > 1 else ""
        yield from _plain(
            textwrap.wrap(
                f"{checks[0]}{more}: {what}", width, initial_indent=" " * INDENT, subsequent_indent=" " * 2 * INDENT
            )
        )


def _unknown(verdict: Verdict, width: int, replayed: bool) -> Iterator[Line]:
    """The clauses nobody can speak for, grouped by the reason; only the first group stands against the transport."""
    told = (GONE, NOT_SELECTED) if replayed else ()  # the one at the head, and the other goes without saying
    unknown = [row for row in verdict.clauses if row.status is Status.UNKNOWN and not row.reason.startswith(told)]
    elsewhere = [rows[0] for rows in verdict.by_clause().values() if _is_for_others(rows)]
    for title, group in (
        ("unknown:", [result for result in unknown if not result.excused]),
        ("not tested, for the reasons in the register:", [result for result in unknown if result.clause.untested]),
        (f"not run on {listed(verdict.engines)}:", elsewhere),
    ):
        if group:
            yield title, {"yellow": title == "unknown:"}
        for reason, engines in _by_reason(group).items():
            where = "; ".join(
                few(ids, 12) + ("" if group is elsewhere else _on(names, verdict))
                for names, ids in _by_value(engines).items()
            )
            yield from _plain(paragraph(f"{where}:", reason, width, indent=INDENT))


def _by_reason(results: Iterable[ClauseResult]) -> dict[str, dict[str, list[str]]]:
    """Reason -> clause id -> the engines on which it holds."""
    grouped: dict[str, dict[str, list[str]]] = {}
    for result in results:
        grouped.setdefault(result.reason, {}).setdefault(result.clause.id, []).append(result.engine)
    return grouped


def _by_value(engines: dict[str, list[str]]) -> dict[tuple[str, ...], list[str]]:
    """Turns id -> engines into engines -> ids."""
    turned: dict[tuple[str, ...], list[str]] = {}
    for clause_id, names in engines.items():
        turned.setdefault(tuple(names), []).append(clause_id)
    return turned


def _facts(verdict: Verdict, width: int) -> Iterator[Line]:
    engines: dict[tuple[str, str], list[str]] = {}
    for fact in verdict.facts:
        seen_on = engines.setdefault((fact.what, worded(fact.value)), [])
        if fact.engine not in seen_on:
            seen_on.append(fact.engine)
    if engines:
        yield "observed, without right or wrong:", {}
    for (what, value), names in engines.items():
        yield from _plain(paragraph(f"{what}:", f"{value}{_on(names, verdict)}", width, indent=INDENT))


def _exposure(verdict: Verdict, width: int) -> Iterator[Line]:
    """A line if anything is open to others."""
    if wide := in_a_line(verdict.exposures or ()):
        yield from _plain(paragraph("open to others while it worked:", wide, width), yellow=True)


def _foot(verdict: Verdict, width: int, seed: int | str, report_path: Path | None) -> Iterator[Line]:
    counts = verdict.counts
    work = ", ".join(
        [count(counts.checks, "check"), count(counts.examples, "example"), count(counts.transfers, "transfer")]
    )
    yield from _plain(textwrap.wrap(f"{work} in {counts.seconds:.1f} s; seed {seed}", width))
    if report_path is not None:
        yield f"report: {report_path}", {}


def _plain(lines: Iterable[str], **markup: bool) -> Iterator[Line]:
    return ((line, markup) for line in lines)


def _on(engines: Sequence[str], verdict: Verdict) -> str:
    """`` on local and ray``; nothing if the run had one engine only."""
    return f" on {listed(engines)}" if len(verdict.engines) > 1 else ""
