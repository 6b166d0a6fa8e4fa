"""The verdict in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from made_small_world import LEAK, REPLAY, RESULTS, TARGET, judged

from rdt_conformance import contract
from rdt_conformance.contract import Area, Clause, Level
from rdt_conformance.report import terminal
from rdt_conformance.results import CheckResult, Failure
from rdt_conformance.verdict import Verdict

pytestmark = pytest.mark.usefixtures("small_world")


class FakeReporter:
    """Keeps what pytest's terminal reporter would print, and in which colours."""

    def __init__(self) -> None:
        self.text = ""
        self.markup: dict[str, set[str]] = {}

    def section(self, title: str) -> None:
        self.text += f"== {title} ==\n"

    def write(self, content: str, **markup: bool) -> None:
        self.text += content
        self.markup[content.rstrip("\n")] = {name for name, wanted in markup.items() if wanted}

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def shown(verdict: Verdict, report_path: Path | None = Path("rdt-report/report.json")) -> FakeReporter:
    reporter = FakeReporter()
    terminal.write(verdict, TARGET, cast(Any, reporter), seed=7, report_path=report_path)
    return reporter


SECTION = """\
== rdt-conformance verdict ==
not conformant: 1 MUST clause broken (G1)
level 1 of 6, "loads"; in the way of level 4 of 6, "cleans up": G1 broken; G2
unknown
transport mine:Mine on local

area              pass     fail  unknown     n.a.  not run
static               1        -        -        -        -
gc                   -        2        1        -        -
abort                -        -        1        -        -
faults               -        -        1        -        1

G1 MUST broken: 50 cycles left 50 more files in /dev/shm than 5 cycles did.
   contract: The transport uses no more memory after many cycles than after a
             few.
   replay:   pytest --transport=mine:Mine --rdt-seed=7 -k test_leak

G10 SHOULD broken: Freeing 4 MB took 3.2 s.
   contract: Freeing is prompt.
   replay:   pytest -k test_slow

unknown:
   G2: its check had not come to it when G1 broke
   A1: no transfer was caught in flight
not tested, for the reasons in the register:
   R9: it takes two machines
not run on local:
   R1: needs the cluster or ray engine

observed, without right or wrong:
   delivers: a snapshot

3 checks, 1,201 examples, 3,450 transfers in 3.2 s; seed 7
report: rdt-report/report.json
"""


def test_the_section_in_the_terminal() -> None:
    assert shown(judged(RESULTS)).text == SECTION


@pytest.mark.parametrize(
    ("results", "colour"),
    [
        ([CheckResult("t", "local", ("S1",), "broken", ("S1",), (Failure("S1", "No."),))], "red"),
        ([CheckResult("t", "local", ("S1",), "error", reason="boom")], "red"),
        ([CheckResult("t", "local", ("S1",), "passed", ("S1",))], "yellow"),
        (
            [CheckResult("t", "local", ("S1", "G1", "G2", "G10", "A1"), "passed", ("S1", "G1", "G2", "G10", "A1"))],
            "green",
        ),
    ],
)
def test_the_headline_has_the_colour_of_the_verdict(results: list[CheckResult], colour: str) -> None:
    verdict = judged(results)
    reporter = shown(verdict)
    assert reporter.markup[reporter.lines[1]] == {colour, "bold"}


def test_who_may_need_a_process_of_its_own_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else dozens of clauses are broken, and none says why: only one of them speaks of instances."""
    apart = Clause("X2", Area.CONCURRENCY, Level.SHOULD, "Instances are independent.", "doc", "They are not.")
    monkeypatch.setattr(contract, "CLAUSES", contract.register([*contract.CLAUSES.values(), apart]))
    dependent = CheckResult("test_two", "local", ("X2",), "broken", ("X2",), (Failure("X2", "No."),))
    text = shown(judged([*RESULTS, dependent])).text
    assert "hint" in text and "needs_process=True" in text
    assert "hint" not in shown(judged([RESULTS[0], dependent])).text, "all else is well"
    assert "hint" not in shown(judged(RESULTS)).text


def test_engines_are_named_once_there_are_several() -> None:
    text = shown(
        judged([*RESULTS, CheckResult("test_leak", "ray", ("G1",), "broken", ("G1",), (LEAK,))], "local", "ray")
    ).text
    assert "transport mine:Mine on local and ray\n" in text
    assert "G1 MUST broken on local and ray: 50 cycles" in text
    assert "G10 SHOULD broken on local: " in text
    assert "   S1, G2, G10, A1, R1 on ray: no check reported on it\n" in text
    assert "   delivers: a snapshot on local\n" in text


def test_a_race_and_a_harness_error_are_called_so() -> None:
    flaky = CheckResult("test_race", "local", ("G2",), "broken", ("G2",), (Failure("G2", "It tore.", flaky=True),))
    text = shown(judged([flaky, CheckResult("test_bad", "local", ("S1",), "error", reason="ZeroDivisionError")])).text
    assert "   flaky:    a race: it broke once and not again on the same input\n" in text
    assert "harness errors: our fault, not the transport's; please report them\n" in text
    assert "   test_bad on local: ZeroDivisionError\n" in text


def test_a_partial_run_shows_no_level_and_no_report_means_no_line() -> None:
    reporter = shown(judged(RESULTS[:1], selected_all=False), report_path=None)
    assert reporter.lines[1] == "partial run: 1 of 7 clauses exercised; not a verdict on the transport"
    assert "level" not in reporter.text
    assert "report:" not in reporter.text


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_forty_broken_clauses_stay_readable(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    clauses = [Clause(f"G{n}", Area.GC, Level.MUST, "word " * 40, "doc", "They do.") for n in range(1, 41)]
    monkeypatch.setattr(contract, "CLAUSES", contract.register(clauses))
    broken = [
        CheckResult(f"t{c.id}", "local", (c.id,), "broken", (c.id,), (Failure(c.id, "what " * 40, replay=REPLAY),))
        for c in clauses
    ]
    lines = shown(judged(broken)).lines
    assert sum(line.startswith("   replay:") for line in lines) == terminal.FULL_ENTRIES
    assert sum(line.startswith("G") and line.endswith(" …") for line in lines) == 30
    assert max(map(len, lines)) < max(80, min(columns, 120))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "yes"),
        (False, "no"),
        (3, "3"),
        (0.123456, "0.1235"),
        (["a", True], "a, yes"),
        ([], "none"),
        (None, "None"),
    ],
)
def test_facts_in_words(value: object, words: str) -> None:
    results = [CheckResult("t", "local", ("S1",), "passed", ("S1",), facts={"what": value})]
    assert f"   what: {words}\n" in shown(judged(results)).text
