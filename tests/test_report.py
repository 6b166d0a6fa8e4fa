"""What a user reads: the story of a failure, the verdict in the terminal, and a report that cannot lie by accident."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

import rdt_conformance
from rdt_conformance import contract, paths
from rdt_conformance.capabilities import Capabilities
from rdt_conformance.contract import PROCESSES, Applies, Area, Clause, Level
from rdt_conformance.environment import environment
from rdt_conformance.report import json_report, paragraph, story, terminal
from rdt_conformance.report.saving import ReportProblem
from rdt_conformance.results import CheckResult, Failure, Step
from rdt_conformance.target import Target, ToldFact
from rdt_conformance.verdict import Status, Verdict, judge

REPLAY = "pytest --transport=mine:Mine --rdt-seed=7 -k test_leak"
SENTENCE = "The transport uses no more memory after many cycles than after a few."
REGISTER = [
    Clause("S1", Area.STATIC, Level.MUST, "It can be built.", "doc A", "Nothing works."),
    Clause("G1", Area.GC, Level.MUST, SENTENCE, "ray#1", "A job that runs for days runs out of memory."),
    Clause("G2", Area.GC, Level.MUST, "Freeing works.", "ray#2", "Memory is never given back."),
    Clause("G10", Area.GC, Level.SHOULD, "Freeing is prompt.", "ray#3", "Transfers are late."),
    Clause("A1", Area.ABORT, Level.MUST, "Abort ends it.", "doc B", "It hangs.", applies=Applies.ABORTABLE),
    Clause("R1", Area.FAULTS, Level.MUST, "It survives.", "doc C", "It dies.", engines=PROCESSES),
    Clause("R9", Area.FAULTS, Level.MUST, "Hosts may fail.", "doc D", "It dies.", untested="it takes two machines"),
]
STEPS = (
    Step(1, 0.0, "source", "main", "task produce", ended=0.004, outcome="returned"),
    Step(2, 0.0012, "source", "main", "extract", "obj1", 0.0031, "1 tensor"),
    Step(3, 0.0042, "sink", "_ray_system", "recv", "obj1", 0.031, "raised KeyError"),
    Step(4, 0.005, "source", "_ray_system", "garbage_collect", "obj1", 0.006, "ok"),
    Step(5, 0.0065, "sink", "main", "wait", "obj2"),
)
LEAK = Failure(
    "G1", "50 cycles left 50 more files in /dev/shm than 5 cycles did.", ("cycles = 50",), STEPS, replay=REPLAY
)
SLOW = Failure("G10", "Freeing 4 MB took 3.2 s.", replay="pytest -k test_slow")
RESULTS = [
    CheckResult("test_static", "local", ("S1",), "passed", ("S1",), examples=1200, transfers=3400, seconds=2.25),
    CheckResult("test_leak", "local", ("G1", "G2"), "broken", ("G1",), (LEAK,), examples=1, transfers=50, seconds=1.0),
    CheckResult("test_slow", "local", ("G10",), "passed", ("G10",), (SLOW,), facts={"delivers": "a snapshot"}),
    CheckResult("test_abort", "local", ("A1",), "not run", reason="no transfer was caught in flight"),
]


class FakeTarget:
    spec = "mine:Mine"
    facts = (ToldFact("name", "MINE", "class: tensor_transport_backend()"),)
    capabilities = Capabilities(
        one_sided=True, can_abort=True, own_fetch=True, takes_buffers=True, devices=("cpu",), nodes=1
    )

    def applies(self, clause: Clause, /) -> bool:
        return True


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


TARGET = cast(Target, FakeTarget())


@pytest.fixture(autouse=True)
def small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "CLAUSES", contract.register(REGISTER))
    monkeypatch.setitem(vars(rdt_conformance), "__version__", "1.2.3")
    monkeypatch.setenv("COLUMNS", "80")


def judged(results: list[CheckResult], *engines: str, selected_all: bool = True) -> Verdict:
    return judge(results, FakeTarget(), engines or ("local",), selected_all=selected_all)


def shown(verdict: Verdict, report_path: Path | None = Path("rdt-report/report.json")) -> FakeReporter:
    reporter = FakeReporter()
    terminal.write(verdict, TARGET, cast(Any, reporter), seed=7, report_path=report_path)
    return reporter


# --- paragraph ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "text", "options", "lines"),
    [
        ("a:", "one two three", {}, ["a: one two", "   three"]),
        ("a:", "one two three", {"indent": 1, "column": 4}, [" a:  one two", "     three"]),
        ("longer:", "one two", {"column": 4}, ["longer: one", "        two"]),
        ("a:", "one\n  two", {}, ["a: one two"]),
        ("a:", "", {}, ["a:"]),
        ("a:", "unbreakable-and-long", {}, ["a: unbreakable-and-long"]),
        ("a very long:", "one two", {"indent": 2}, ["  a very", "    long:", "    one two"]),
    ],
)
def test_a_paragraph_is_wrapped_under_its_first_word(
    label: str, text: str, options: dict[str, int], lines: list[str]
) -> None:
    assert [line.rstrip() for line in paragraph(label, text, 12, **options)] == lines


# --- story ----------------------------------------------------------------------------------------------------------

STORY = """\
G1 MUST (gc) is broken

happened  50 cycles left 50 more files in /dev/shm than 5 cycles did.
contract  The transport uses no more memory after many cycles than after a few.
suffers   A job that runs for days runs out of memory.
source    ray#1
explained rdt-conformance clause G1

Example:
  cycles = 50

History:
  #  t(ms)  process  lane         call                     outcome
  1    0.0  source   main         task produce          -> returned  … ended after step 2
  2    1.2  source   main         extract obj1          -> 1 tensor
  3    4.2  sink     _ray_system  recv obj1             -> raised KeyError  … ended during step 5
  4    5.0  source   _ray_system  garbage_collect obj1  -> ok
  5    6.5  sink     main         wait obj2             -> … never ended

Replay it with:
  pytest --transport=mine:Mine --rdt-seed=7 -k test_leak"""


def test_a_story_names_the_clause_tells_what_happened_and_ends_with_the_replay() -> None:
    assert story.render(LEAK) == STORY


def test_a_story_shows_the_authors_frames_the_stacks_and_that_it_was_a_race() -> None:
    failure = Failure(
        "G2", "It hung.", error='File "mine.py"\nKeyError: 1', stacks="sink main\n  lock", flaky=True, replay="r"
    )
    told = story.render(failure)
    assert 'Raised by the transport:\n  File "mine.py"\n  KeyError: 1\n' in told
    assert "Where each thread was stuck:\n  sink main\n    lock\n" in told
    assert "flaky     It broke once and not again on the same input: a race" in told


def test_a_story_of_a_clause_without_register_entry_is_still_told() -> None:
    assert story.render(Failure("Z9", "It broke.")) == (
        "Z9 (not in the register) is broken\n\nhappened  It broke.\n\nReplay it with:\n  (no replay was recorded)"
    )


@pytest.mark.parametrize(
    ("spans", "reach"),
    [
        ([(0, 1), (2, 3)], ""),
        ([(0, 2), (2, 3)], ""),
        ([(0, 2), (1, 3)], "… ended during step 2"),
        ([(0, 4), (1, 3)], "… ended after step 2"),
        ([(0, 4), (1, 2), (3, 5)], "… ended during step 3"),
        ([(0, 4), (1, None)], "… ended during step 2"),
        ([(0, None), (1, 2)], "… never ended"),
    ],
)
def test_overlapping_steps_can_be_seen(spans: list[tuple[float, float | None]], reach: str) -> None:
    steps = [
        Step(number, at / 1000, "p", "main", "call", ended=None if ended is None else ended / 1000, outcome="ok")
        for number, (at, ended) in enumerate(spans, 1)
    ]
    assert story.history_lines(steps)[1] == f"1    0.0  p        main  call  -> ok  {reach}".rstrip()


def test_the_middle_of_a_long_history_is_left_out() -> None:
    steps = [Step(number, number, "p", "main", "call", ended=number, outcome="ok") for number in range(1, 101)]
    lines = story.history_lines(steps)
    assert [line.split()[0] for line in (lines[10], lines[12], lines[-1])] == ["10", "71", "100"]
    assert lines[11] == "… 60 steps left out; report.json holds them all"
    assert len(story.history_lines(steps[:40])) == 41


# --- terminal -------------------------------------------------------------------------------------------------------

SECTION = """\
== rdt-conformance verdict ==
not conformant: 1 MUST clause broken (G1)
level 1 of 6, "loads"; in the way of level 4 of 6, "cleans up": G1 broken; G2
unknown
transport mine:Mine on local

area              pass     fail  unknown     n.a.
static               1        -        -        -
gc                   -        2        1        -
abort                -        -        1        -
faults               -        -        1        1

G1 MUST broken: 50 cycles left 50 more files in /dev/shm than 5 cycles did.
   contract: The transport uses no more memory after many cycles than after a
             few.
   replay:   pytest --transport=mine:Mine --rdt-seed=7 -k test_leak

G10 SHOULD broken: Freeing 4 MB took 3.2 s.
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


# --- report.json ----------------------------------------------------------------------------------------------------

RUN = {"seed": 7, "profile": "standard", "engines": ("local",)}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return json_report.write(
        tmp_path / "new" / "folder", json_report.build(judged(RESULTS), TARGET, RESULTS, environment() | RUN)
    )


def test_what_was_written_is_read_and_can_be_judged_again(report: Path) -> None:
    document = json_report.read(report)
    assert list(document) == [
        "header",
        "environment",
        "target",
        "verdict",
        "clauses",
        "checks",
        "benchmarks",
        "deviations",
        "required",
        "faults",
        "alarms",
        "footer",
    ]
    assert document["header"]["suite_version"] == "1.2.3"
    assert document["target"]["facts"] == [
        {"name": "name", "value": "MINE", "learnt_from": "class: tensor_transport_backend()"}
    ]
    assert document["verdict"]["exit_status"] == 1
    assert document["verdict"]["warnings"] == ["G10 SHOULD broken on local: Freeing 4 MB took 3.2 s."]
    by_id = {clause["id"]: clause for clause in document["clauses"]}
    assert by_id["G1"]["sentence"] == SENTENCE
    assert by_id["G1"]["results"] == [
        {"engine": "local", "status": "fail", "reason": LEAK.happened, "checks": ["test_leak"], "hidden_by": []}
    ]
    results = [CheckResult.from_json(check) for check in document["checks"]]
    assert results == RESULTS
    assert judged(results) == judged(RESULTS)


def test_a_report_replaces_an_older_one_and_leaves_nothing_beside_it(report: Path) -> None:
    assert json_report.write(report.parent, json_report.build(judged([]), TARGET, [], environment() | RUN)) == report
    assert json_report.read(report)["checks"] == []
    assert os.listdir(report.parent) == ["report.json"]


def edited(*path: str | int, to: object) -> Callable[[str], str]:
    """A hand that changes one value of a report."""

    def edit(text: str) -> str:
        document = json.loads(text)
        *parents, last = path
        part = document
        for key in parents:
            part = part[key]
        part[last] = to
        return json.dumps(document)

    return edit


def without(section: str) -> Callable[[str], str]:
    return lambda text: json.dumps({key: value for key, value in json.loads(text).items() if key != section})


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text: "", "empty; no run finished writing it"),
        (lambda text: " \n", "empty; no run finished writing it"),
        (lambda text: text[: len(text) // 2], "cut off or damaged at line "),
        (lambda text: "[]", "not a report of rdt-conformance"),
        (lambda text: "{}", "not a report of rdt-conformance"),
        (lambda text: '{"header": 1}', "not a report of rdt-conformance"),
        (edited("header", "format", to="other"), "not a report of rdt-conformance"),
        (edited("header", "version", to=0), "format 0, written by rdt-conformance 1.2.3; this one reads format 2"),
        (edited("header", "version", to=1), "format 1, written by rdt-conformance 1.2.3; this one reads format 2"),
        (without("footer"), "at $: 'footer' is a required property"),
        (edited("footer", "complete", to=False), "at $.footer.complete: True was expected"),
        (edited("footer", "checks", to=3), "edited after the run: it does not match its own footer"),
        (edited("clauses", 1, "results", 0, "status", to="pass"), "edited after the run: "),
        (edited("clauses", 1, "results", 0, "status", to="green"), "at $.clauses[1].results[0].status: 'green' is not"),
        (edited("verdict", "exit_status", to=0), "edited after the run: "),
        (edited("verdict", "headline", to="conformant"), "edited after the run: "),
        (edited("checks", to=[]), "edited after the run: "),
        (lambda text: "[" * 100_000, "not a report of rdt-conformance, it holds what none would"),
        (lambda text: "9" * 100_000, "not a report of rdt-conformance, it holds what none would"),
        (edited("checks", 1, "failures", to=[]), "edited after the run: "),
    ],
)
def test_a_damaged_report_is_never_trusted(report: Path, damage: Callable[[str], str], problem: str) -> None:
    report.write_text(damage(report.read_text()))
    with pytest.raises(ReportProblem) as caught:
        json_report.read(report)
    assert str(caught.value).startswith(f"{report}: {problem}")
    assert "\n" not in str(caught.value)


def test_a_report_cut_off_anywhere_is_never_trusted(report: Path) -> None:
    text = report.read_text().rstrip()
    for length in range(0, len(text), max(1, len(text) // 97)):
        report.write_text(text[:length])
        with pytest.raises(ReportProblem):
            json_report.read(report)


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ReportProblem, match=r"report\.json: cannot be read: No such file or directory$"):
        json_report.read(tmp_path / "report.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReportProblem, match=r"binary: not a report of rdt-conformance, it is not even text$"):
        json_report.read(tmp_path / "binary")


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportProblem, match=r"report\.json: cannot be written: (File exists|Not a directory)$"):
        json_report.write(tmp_path / "file", json_report.build(judged([]), TARGET, [], environment() | RUN))
    (tmp_path / "taken" / "report.json").mkdir(parents=True)
    with pytest.raises(ReportProblem, match=r"report\.json: cannot be written: Is a directory$"):
        json_report.write(tmp_path / "taken", json_report.build(judged([]), TARGET, [], environment() | RUN))
    assert os.listdir(tmp_path / "taken") == ["report.json"]


@pytest.mark.parametrize(
    ("result", "run", "problem"),
    [
        (CheckResult("t", "local", ("S1",), "passed", facts={"x": object()}), RUN, "cannot be told in JSON"),
        (CheckResult("t", "local", ("S1",), "passed", facts={"x": float("nan")}), RUN, "cannot be told in JSON"),
        (CheckResult("t", "local", ("S1",), "passed", seconds=-1), RUN, "break its own schema"),
        (CheckResult("t", "local", ("S1",), "passed"), {}, "break its own schema"),
    ],
)
def test_a_report_that_breaks_its_schema_is_not_written(
    tmp_path: Path, result: CheckResult, run: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ReportProblem, match=f"{problem}.*harness error"):
        json_report.write(tmp_path, json_report.build(judged([]), TARGET, [result], environment() | run))
    assert os.listdir(tmp_path) == []


def test_the_schema_is_one_and_forbids_what_it_does_not_know() -> None:
    schema = json.loads((paths.data_folder("reports") / "schema" / "report-2.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    parts = [schema, *schema["$defs"].values()]
    closed = [part.get("additionalProperties") is False for part in parts if "properties" in part]
    assert closed.count(False) == 1  # the environment may grow


def test_the_schema_knows_the_words_of_the_register() -> None:
    schema = json.loads((paths.data_folder("reports") / "schema" / "report-2.json").read_text())
    clause = schema["$defs"]["clause"]["properties"]
    assert clause["area"]["enum"] == [area.value for area in Area]
    assert clause["level"]["enum"] == [level.value for level in Level]
    assert clause["applies"]["enum"] == [applies.value for applies in Applies]
    assert set(clause["results"]["items"]["properties"]["status"]["enum"]) == {status.value for status in Status}


# --- environment ----------------------------------------------------------------------------------------------------


def test_the_environment_is_json_and_tells_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "hunter2")
    monkeypatch.setenv("MY_RAY_THING", "unrelated")
    found = environment()
    assert json.loads(json.dumps(found)) == found
    assert found["variables"]["UCX_TLS"] == "tcp"
    assert found["variables"]["RAY_AUTH_TOKEN"] == "(set, not shown)"
    assert "MY_RAY_THING" not in found["variables"]
    assert found["packages"]["pytest"] == pytest.__version__
    assert found["cores"] >= 1


def test_the_environment_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rdt_conformance.environment import environment; environment();"
        "assert not {'ray', 'torch', 'numpy', 'pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=paths.data_folder("reports").parent)
