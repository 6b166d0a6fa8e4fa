"""The summary for a pull request, and for the page of a run of GitHub Actions."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rdt_conformance.report import diagram
from rdt_conformance.report.view import LEGEND, BrokenClause, RunView
from rdt_conformance.words import count, few, listed

FILE_NAME = "summary.md"
FULL_ENTRIES = 10
"""Broken clauses told at length; the others get a line each."""
LONGEST = 600
"""Characters of a sentence; some transports raise pages."""

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~!&@]|(?<!\w)_|_(?!\w))")


def render(document: Mapping[str, Any]) -> str:
    """The summary of a report, in GitHub's Markdown."""
    return "\n".join(_lines(RunView(document))) + "\n"


def show_in_github(text: str) -> None:
    """Add `text` to the page of the job's run, if this is one of GitHub Actions."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        # The verdict does not depend on whether it can be shown there.
        with contextlib.suppress(OSError), Path(page).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def _lines(run: RunView) -> Iterator[str]:
    yield f"## {run.outcome.sign} {_plain(run.word)}: {_code(run.target['spec'])}"
    yield ""
    yield _plain(run.rest[:1].upper() + run.rest[1:])
    yield ""
    yield from _facts(run)
    yield ""
    yield from _areas(run)
    yield from _listing("### Demands not met", [_plain(line) for line in run.verdict["unmet"]])
    for number, entry in enumerate(run.broken):
        yield from _at_length(entry) if number < FULL_ENTRIES else _in_a_line(entry)
    yield from _listing("### ≈ Deviations, listed and accepted", map(_deviation, run.verdict["deviations"]))
    yield from _unknown(run)


def _facts(run: RunView) -> Iterator[str]:
    verdict = run.verdict
    level = f"{verdict['level']['number']}, {verdict['level']['name']}" if verdict["level"] else "none"
    if verdict["next_blocked_by"]:
        obstacles = [f"{_plain(o['clause'])} ({_plain(o['why'])})" for o in verdict["next_blocked_by"]]
        level += f"; in the way of level {verdict['next_level']['number']}: {few(obstacles)}"
    yield "| | |"
    yield "|---|---|"
    if not verdict["partial"]:
        yield f"| level | {level} |"
    for fact in run.target["facts"]:
        if fact["name"] == "fits Ray":
            yield f"| {fact['name']} | {_plain(fact['value'])} |"
    yield f"| engines | {_plain(listed(run.engines))} |"
    profile, seed = (_plain(run.environment[name]) for name in ("profile", "seed"))
    yield f"| run | profile {profile}, seed {seed}, {_plain(run.packages)} |"
    yield f"| work | {run.work} |"


def _areas(run: RunView) -> Iterator[str]:
    present = [status for status, _ in run.tally(run.clauses)]
    statuses = [status for status in LEGEND if status in present]
    yield "| area | " + " | ".join(f"{status.sign} {status.word}" for status in statuses) + " |"
    yield "|---|" + "--:|" * len(statuses)
    for area, clauses in run.areas.items():
        numbers = dict(run.tally(clauses))
        yield f"| {area} | " + " | ".join(str(numbers.get(status, "")) for status in statuses) + " |"


def _at_length(entry: BrokenClause) -> Iterator[str]:
    failure = entry.best.failure
    yield ""
    yield f"### {entry.status.sign} {_title(entry)}"
    yield ""
    yield f"**Promised:** {_plain(entry.clause['sentence'])}"
    yield ""
    yield f"**Happened:** {_plain(failure.happened)}"
    if failure.flaky:
        yield ""
        yield "It broke once and not again on the same input: a race."
    if failure.history:
        yield ""
        yield f"<details><summary>{count(len(failure.history), 'step')}</summary>"
        yield ""
        yield from _block(diagram.as_text(entry.best.diagram))
        yield ""
        yield "</details>"
    if failure.replay:
        yield ""
        yield from _block([failure.replay])


def _in_a_line(entry: BrokenClause) -> Iterator[str]:
    yield ""
    yield f"{entry.status.sign} **{_title(entry)}**: {_plain(entry.best.failure.happened, 200)}"


def _title(entry: BrokenClause) -> str:
    return f"{_plain(entry.clause['id'])} {entry.clause['level']} broken on {_plain(entry.engines)}"


def _deviation(entry: Mapping[str, Any]) -> str:
    what = f"**{_plain(entry['clause'])}** {entry['level']} broken on {_plain(entry['engine'])}"
    accepted = f"{_plain(entry['reason'])} ({_plain(entry['link'])})"
    return f"{what}: {_plain(entry['happened'], 200)} Accepted until {entry['expires']}: {accepted}"


def _listing(title: str, lines: Iterable[str]) -> Iterator[str]:
    """A heading and a list under it; nothing if that is empty."""
    items = [f"- {line}" for line in lines]
    yield from ["", title, "", *items] if items else []


def _unknown(run: RunView) -> Iterator[str]:
    ids = [(list(dict.fromkeys(clause for clause, _ in entries)), reason) for reason, entries in run.unknown]
    yield from _listing("### ? Unknown", [f"{_plain(few(clauses, 12))}: {_plain(reason)}" for clauses, reason in ids])


def _plain(text: object, longest: int = LONGEST) -> str:
    """Text that shows as it is, on one line."""
    words = " ".join(str(text).split())
    return _SPECIAL.sub(r"\\\1", words if len(words) <= longest else f"{words[: longest - 1]}…")


def _code(text: str) -> str:
    """Text as code within a line, whatever backticks are in it."""
    words = " ".join(text.split())[:LONGEST]
    fence = _fence(words, 1)
    return f"{fence} {words} {fence}" if "`" in words else f"{fence}{words}{fence}"


def _block(lines: list[str]) -> Iterator[str]:
    fence = _fence("\n".join(lines), 3)
    yield f"{fence}text"
    yield from lines
    yield fence


def _fence(text: str, least: int) -> str:
    """More backticks than there are anywhere in the text."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])
