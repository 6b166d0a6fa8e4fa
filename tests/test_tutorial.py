"""The tutorial does what it says: its code and commands, taken from the page, fail and pass as the page shows."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from suite_run import ROOT, run_pytest_forked

from rdt_conformance import cli
from rdt_conformance.contract import CLAUSES, Level

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
SET_UP = "pip install"
"""Done by ``.ci/run`` with the wheel, in an environment of its own; see also `test_docs_commands`."""
BRIEF = {
    "examples": 2,
    "seconds": 0.1,
    "shrink_seconds": 0.3,
    "most_cycles": 200,
    "big_bytes": 64 << 20,  # less is copied before it can be aborted
    "many_tensors": 100,
}
"""Every check runs, and the verdict is drawn as for any run, but in a third of the time."""


def test_the_steps_of_the_tutorial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, failures = tmp_path, "", 0
    for language, title, text in BLOCKS:
        if title:
            (tmp_path / title).write_text(text)
            code = tmp_path / title
        elif language == "python":
            code.write_text(put_in(code.read_text(), text))
        elif language == "text":
            for line in text.splitlines():
                assert squeezed(line.strip("…")) in printed, f"{line!r} is not in what was printed"
        elif SET_UP not in text:
            printed = squeezed(run(text.strip(), tmp_path, capsys))
            failures += " is broken" in printed
    assert failures == 6


def run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints; that it ends as it has to, and breaks the clauses that it names and no others."""
    program, *arguments = command.split()
    if program == "rdt-conformance":
        assert cli.main(arguments) == 0
        return capsys.readouterr().out
    assert program == "pytest"
    named = {name for argument in arguments for name in argument.removeprefix("--rdt-clause=").split(",")}
    done = run_pytest_forked(folder, arguments, seconds=240, budget=BRIEF)
    assert done.status == (1 if named else 0), done.printed
    report = json.loads((folder / "rdt-report" / "report.json").read_text())
    broken = {entry["id"] for entry in report["clauses"] if "fail" in {one["status"] for one in entry["results"]}}
    assert {name for name in broken if CLAUSES[name].level is Level.MUST} == named
    return done.printed


def put_in(source: str, block: str) -> str:
    """The source with what a block of the page shows in the place of what has the same name; imports come on top.

    A class that is "as before, but for" some methods keeps the others.
    """
    new, lines = dict(named(block)), source.splitlines()
    imports = [line for line in block.splitlines() if line.startswith("import ")]
    for name, (first, end) in reversed(list(named(source))):
        if name in new:
            start, stop = new.pop(name)
            lines[first:end] = block.splitlines()[start:stop]
    assert not new, f"the page replaces {', '.join(new)}, which is not there"
    place = next(number for number, line in enumerate(lines) if line.startswith("from "))
    return "\n".join([*lines[:place], *imports, *lines[place:]]) + "\n"


def named(source: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The functions, the transport's methods and the request's class, each with the range of its lines."""
    for node in ast.parse(source).body:
        inside = node.body if isinstance(node, ast.ClassDef) and node.name == "MemfdTransport" else [node]
        for each in inside:
            if isinstance(each, ast.FunctionDef) or (isinstance(each, ast.ClassDef) and "Request" in each.name):
                yield each.name, (each.lineno - 1, each.end_lineno or 0)


def squeezed(text: str) -> str:
    """With one space wherever there is white space: how lines are broken depends on the terminal."""
    return " ".join(text.split())
