"""One clause, explained: what it asks for, why, and what to do. For the terminal; the docs make a page of the same."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rdt_conformance.contract import Applies, Clause
from rdt_conformance.faults_known import Fault
from rdt_conformance.options import ENGINES, SOAK
from rdt_conformance.report import paragraph

WIDTH = 100


def facts(entry: Clause) -> dict[str, str]:
    """What is known of a clause besides its sentence, by a short label, in the order in which it is told."""
    return {
        "why": entry.why,
        "if broken": entry.suffers,
        "what to do": entry.fix,
        "speaks of": entry.applies.value,
        "engines": ", ".join(engine for engine in ENGINES if engine in entry.engines),
        "since": f"Ray {entry.since}",
    }


def command(entry: Clause, fault: Fault) -> str:
    """The command line on which the checks of a clause catch a transport that breaks it on purpose."""
    if fault.soak:
        return f"pytest --transport={fault.target} --rdt-profile={SOAK} --rdt-minutes=1"
    engines = [e for e in ENGINES if e in entry.engines and not (fault.across_processes and e == "local")]
    options = [f"--transport={fault.target}", f"--rdt-clause={entry.id}", f"--rdt-engine={engines[0]}"]
    options += ["--rdt-devices=cuda"] if fault.cuda else []
    options += ["--rdt-nodes=2"] if entry.applies is Applies.SEVERAL_NODES else []
    return " ".join(["pytest", *options])


def as_text(entry: Clause, faults: Sequence[Fault]) -> str:
    """The whole explanation, wrapped at `WIDTH` columns; code is not.

    Args:
        entry: the clause.
        faults: the transports that break it on purpose.
    """
    told = facts(entry) | {
        "source": entry.source,
        "its checks": f"pytest --transport=TARGET --rdt-clause={entry.id}",
    }
    lines = [f"{entry.id} {entry.level.value} ({entry.area.value})", *textwrap.wrap(entry.sentence, WIDTH), ""]
    for label, text in told.items():
        lines += paragraph(label, text, WIDTH, column=12)
    return "\n".join([*lines, *_examples(entry, faults)])


def _examples(entry: Clause, faults: Sequence[Fault]) -> Iterator[str]:
    if not faults:
        return
    yield from ("", "Transports that break it on purpose, and are caught:")
    for fault in faults:
        yield from ("", f"  {command(entry, fault)}")
        yield from textwrap.wrap(fault.mistake, WIDTH, initial_indent="    ", subsequent_indent="    ")
    yield from ("", f"The first of them, {faults[0].name}:", "")
    yield textwrap.indent(faults[0].code, "  ")
