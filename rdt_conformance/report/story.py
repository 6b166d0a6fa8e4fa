"""One failure, told to the author of the transport: it is what pytest prints for the failed test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdt_conformance import contract
from rdt_conformance.report import paragraph
from rdt_conformance.report.diagram import failing_step
from rdt_conformance.report.steps_shown import steps_shown
from rdt_conformance.report.twins import differences
from rdt_conformance.results import Failure, Step
from rdt_conformance.words import count

WIDTH = 100
HEADINGS = ("#", "t(ms)", "process", "lane", "call", "outcome")


def render(failure: Failure) -> str:
    """The whole story; its last line is the command that replays it.

    Prose is wrapped at 100 columns; the history is as wide as its longest call. Of a history of more than 40 steps only
    those are shown that are likely to matter; ``report.json`` holds all of it.
    """
    sections = [
        _headline(failure),
        _prose(failure),
        _block("Example", failure.example),
        _block("History", history_lines(failure.history, failing_step(failure))),
        _block("A similar example went well", list(differences(failure))),
        _block("Raised by the transport", failure.error.splitlines()),
        _block("Where each thread was stuck", failure.stacks.splitlines()),
        _block("Last words of what ended by itself", failure.crash.splitlines()),
        _block("Replay it with", [failure.replay or "(no replay was recorded)"]),
    ]
    return "\n\n".join("\n".join(lines) for section in sections if (lines := list(section)))


def history_lines(history: Sequence[Step], marked: int | None = None) -> list[str]:
    """The history as a table, one line for each step.

    A call during which other steps began says how far it reached: ``… ended after step 7``.

    Args:
        history: oldest first.
        marked: the number of the step at which a failure was seen, see `steps_shown`.
    """
    if not history:
        return []
    shown = steps_shown(history, marked)
    rows = [step if isinstance(step, int) else _row(step, history) for step in shown]
    whole = [row for row in rows if not isinstance(row, int)]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *whole, strict=True)]
    lines = [_left_out(row) if isinstance(row, int) else _aligned(row, widths, arrow="->") for row in rows]
    return [_aligned(HEADINGS, widths, arrow="  "), *lines]


def _left_out(steps: int) -> str:
    return f"… {count(steps, 'step')} left out; report.json holds them all"


def _aligned(row: Sequence[str], widths: Sequence[int], *, arrow: str) -> str:
    """One line of the table: numbers to the right, words to the left, the outcome behind an arrow."""
    number, at, *words, outcome = row
    cells = [number.rjust(widths[0]), at.rjust(widths[1])]
    cells += [word.ljust(width) for word, width in zip(words, widths[2:-1], strict=True)]
    return "  ".join([*cells, f"{arrow} {outcome}"]).rstrip()


def _headline(failure: Failure) -> Iterator[str]:
    clause = contract.CLAUSES.get(failure.clause)
    if clause is None:
        yield f"{failure.clause} (not in the register) is broken"
    else:
        yield f"{clause.id} {clause.level.value} ({clause.area.value}) is broken"


def _prose(failure: Failure) -> Iterator[str]:
    texts = {"happened": failure.happened}
    if clause := contract.CLAUSES.get(failure.clause):
        texts |= {"contract": clause.sentence, "suffers": clause.suffers, "source": clause.source}
        texts["explained"] = f"rdt-conformance clause {clause.id}"
    if failure.flaky:
        texts["flaky"] = (
            "It broke once and not again on the same input: a race, or state left by earlier transfers. "
            "It counts as broken; a replay may need several tries."
        )
    for label, text in texts.items():
        yield from paragraph(label, text, WIDTH, column=10)


def _block(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _row(step: Step, history: Sequence[Step]) -> tuple[str, ...]:
    call = f"{step.what} {step.obj_id}".rstrip()
    outcome = "  ".join(part for part in (step.outcome, _reach(step, history)) if part)
    return str(step.number), f"{step.at * 1000:.1f}", step.process, step.lane, call, outcome


def _reach(step: Step, history: Sequence[Step]) -> str:
    """How far a step reached into those that began while it ran; empty if it had the time to itself."""
    if step.ended is None:
        return "… never ended"
    during = [other for other in history if other.number > step.number and other.at < step.ended]
    if not during:
        return ""
    last = during[-1]
    still_running = last.ended is None or last.ended > step.ended
    return f"… ended {'during' if still_running else 'after'} step {last.number}"
