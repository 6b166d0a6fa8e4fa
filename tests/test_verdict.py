"""Tables of hand-made results: what each proves about each clause, and how the run ends."""

from __future__ import annotations

from typing import Any

import pytest

from rdt_conformance import contract
from rdt_conformance.contract import EVERYWHERE, PROCESSES, Applies, Area, Clause, Level
from rdt_conformance.results import CheckResult, Failure, Outcome, Step
from rdt_conformance.verdict import ClauseResult, Exit, Status, Verdict, judge, worst


def make_clause(
    clause_id: str,
    area: Area,
    level: Level = Level.MUST,
    *,
    applies: Applies = Applies.ALWAYS,
    engines: frozenset[str] = EVERYWHERE,
    untested: str = "",
) -> Clause:
    return Clause(clause_id, area, level, "It holds.", "doc", "They do.", applies, engines, untested=untested)


REGISTER = [
    make_clause("S1", Area.STATIC),
    make_clause("D1", Area.INTEGRITY),
    make_clause("D5r", Area.INTEGRITY, Level.REPORT),
    make_clause("O1", Area.ORDERING),
    make_clause("G1", Area.GC),
    make_clause("G1b", Area.GC, Level.SHOULD),
    make_clause("A1", Area.ABORT, applies=Applies.ABORTABLE),
    make_clause("R1", Area.FAULTS, engines=PROCESSES),
    make_clause("R9", Area.FAULTS, untested="it would take a second machine"),
]
ON_LOCAL = ("S1", "D1", "O1", "G1", "G1b", "A1")


class FakeTarget:
    def __init__(self, *, abortable: bool = True) -> None:
        self.abortable = abortable

    def applies(self, clause: Clause, /) -> bool:
        return self.abortable or clause.applies is not Applies.ABORTABLE


@pytest.fixture(autouse=True)
def small_register(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "CLAUSES", contract.register(REGISTER))


def result(
    outcome: Outcome,
    *clauses: str,
    seen: tuple[str, ...] | None = None,
    breaks: tuple[str, ...] = (),
    reason: str = "",
    engine: str = "local",
    name: str = "",
) -> CheckResult:
    """One check's result; it has seen all its clauses unless told otherwise."""
    return CheckResult(
        name or f"test_{'_'.join(clauses).lower()}",
        engine,
        clauses,
        outcome,
        clauses if seen is None else seen,
        tuple(Failure(clause, f"{clause} went wrong.") for clause in breaks),
        reason,
    )


def passed(*clauses: str, seen: tuple[str, ...] | None = None, engine: str = "local") -> CheckResult:
    return result("passed", *clauses, seen=seen, engine=engine)


def broken(*clauses: str, breaks: str, seen: tuple[str, ...] | None = None, engine: str = "local") -> CheckResult:
    return result("broken", *clauses, seen=seen, breaks=(breaks,), engine=engine)


def not_run(*clauses: str, reason: str = "no GPU here", engine: str = "local") -> CheckResult:
    return result("not run", *clauses, seen=(), reason=reason, engine=engine)


def crashed(*clauses: str, breaks: tuple[str, ...] = ()) -> CheckResult:
    return result("error", *clauses, breaks=breaks, reason="ZeroDivisionError in test_x")


def judged(
    *results: CheckResult, engines: tuple[str, ...] = ("local",), abortable: bool = True, selected_all: bool = True
) -> Verdict:
    return judge(results, FakeTarget(abortable=abortable), engines, selected_all=selected_all)


def on(verdict: Verdict, clause_id: str, engine: str = "local") -> ClauseResult:
    return next(r for r in verdict.by_clause()[clause_id] if r.engine == engine)


NO_CHECK = "no check reported on it"
CRASHED = "its check crashed, which is a harness error"
NEVER_AROSE = "its check ran, but the situation it speaks of never arose"


@pytest.mark.parametrize(
    ("results", "status", "reason"),
    [
        pytest.param([passed("D1")], Status.PASS, "", id="seen and passed"),
        pytest.param([passed("D1", seen=())], Status.UNKNOWN, NEVER_AROSE, id="passed without having seen it"),
        pytest.param([passed("S1", seen=("S1", "D1"))], Status.UNKNOWN, NO_CHECK, id="seen by a check for others"),
        pytest.param([broken("D1", breaks="D1")], Status.FAIL, "D1 went wrong.", id="broken"),
        pytest.param([broken("S1", breaks="D1")], Status.FAIL, "D1 went wrong.", id="broken in a check for others"),
        pytest.param([broken("D1", breaks="D1"), passed("D1")], Status.FAIL, "D1 went wrong.", id="once is enough"),
        pytest.param(
            [result("passed", "D1", breaks=("D1",))], Status.FAIL, "D1 went wrong.", id="failure outweighs outcome"
        ),
        pytest.param([result("not run", "D1", breaks=("D1",))], Status.FAIL, "D1 went wrong.", id="also if not run"),
        pytest.param([broken("D1", "O1", breaks="O1")], Status.PASS, "", id="seen before another broke"),
        pytest.param(
            [broken("D1", "O1", seen=("O1",), breaks="O1")],
            Status.UNKNOWN,
            "its check had not come to it when O1 broke",
            id="not reached because another broke",
        ),
        pytest.param([not_run("D1")], Status.UNKNOWN, "no GPU here", id="not run"),
        pytest.param(
            [result("not run", "D1")], Status.UNKNOWN, "its check did not run and gave no reason", id="not run, seen"
        ),
        pytest.param([not_run("D1"), passed("D1")], Status.UNKNOWN, "no GPU here", id="only the other half ran"),
        pytest.param([not_run("S1", "D1"), passed("D1")], Status.PASS, "", id="a check for others did not run"),
        pytest.param([crashed("D1")], Status.UNKNOWN, CRASHED, id="crashed"),
        pytest.param([crashed("D1", breaks=("D1",))], Status.UNKNOWN, CRASHED, id="crashed, hence not believed"),
        pytest.param([crashed("D1"), passed("D1")], Status.PASS, "", id="crashed beside one that passed"),
        pytest.param(
            [crashed("D1"), broken("D1", breaks="D1")], Status.FAIL, "D1 went wrong.", id="crashed beside broken"
        ),
        pytest.param([not_run("D1"), not_run("D1")], Status.UNKNOWN, "no GPU here", id="one reason is told once"),
        pytest.param([not_run("D1"), crashed("D1")], Status.UNKNOWN, f"no GPU here; {CRASHED}", id="two reasons"),
        pytest.param([], Status.UNKNOWN, NO_CHECK, id="no check"),
        pytest.param([passed("D1", engine="ray")], Status.UNKNOWN, NO_CHECK, id="passed on another engine"),
    ],
)
def test_what_results_prove_about_a_clause(results: list[CheckResult], status: Status, reason: str) -> None:
    found = on(judged(*results), "D1")
    assert (found.status, found.reason) == (status, reason)


@pytest.mark.parametrize(
    ("clause_id", "status", "reason", "elsewhere"),
    [
        ("A1", Status.NOT_APPLICABLE, "only for transports that can abort", False),
        ("R1", Status.NOT_APPLICABLE, "needs the cluster or ray engine", True),
        ("R9", Status.UNKNOWN, "it would take a second machine", False),
    ],
)
def test_why_a_clause_was_not_tested(clause_id: str, status: Status, reason: str, elsewhere: bool) -> None:
    found = on(judged(abortable=False), clause_id)
    assert (found.status, found.reason, found.elsewhere) == (status, reason, elsewhere)


def test_the_checks_behind_a_clause_are_named() -> None:
    verdict = judged(result("passed", "D1", name="test_a"), result("passed", "D1", name="test_b"), not_run("O1"))
    assert on(verdict, "D1").checks == ("test_a", "test_b")
    assert on(verdict, "O1").checks == ("test_o1",)


def test_the_clearest_failure_comes_first() -> None:
    step = Step(1, 0.0, "source", "main", "extract")
    failures = (
        Failure("D1", "rare", flaky=True),
        Failure("D1", "long", history=(step,) * 9),
        Failure("D1", "short", history=(step,)),
    )
    found = on(judged(CheckResult("test_d1", "local", ("D1",), "broken", failures=failures)), "D1")
    assert [failure.happened for failure in found.failures] == ["short", "long", "rare"]


def test_a_failure_that_does_not_come_again_is_a_failure() -> None:
    flaky = CheckResult("test_d1", "local", ("D1",), "broken", failures=(Failure("D1", "It tore.", flaky=True),))
    assert judged(passed(*ON_LOCAL), flaky).exit_status is Exit.BROKEN


ALL = passed(*ON_LOCAL)


@pytest.mark.parametrize(
    ("results", "flags", "status", "headline"),
    [
        pytest.param(
            [ALL],
            {},
            Exit.CONFORMANT,
            "conformant: every MUST clause that could be tested holds; 6 of 9 clauses exercised on local",
            id="all hold",
        ),
        pytest.param(
            [ALL],
            {"abortable": False},
            Exit.CONFORMANT,
            "conformant: every MUST clause that could be tested holds; 5 of 8 clauses exercised on local",
            id="all that apply hold",
        ),
        pytest.param(
            [ALL, broken("G1b", breaks="G1b")],
            {},
            Exit.CONFORMANT,
            "conformant: every MUST clause that could be tested holds, 1 SHOULD clause broken (G1b); "
            "6 of 9 clauses exercised on local",
            id="a SHOULD only warns",
        ),
        pytest.param(
            [ALL, broken("D1", breaks="D1"), broken("G1", breaks="G1")],
            {},
            Exit.BROKEN,
            "not conformant: 2 MUST clauses broken (D1, G1)",
            id="a MUST fails",
        ),
        pytest.param(
            [passed("S1", "D1", "O1", "G1", "G1b"), not_run("A1")],
            {},
            Exit.INCONCLUSIVE,
            "inconclusive: 1 applicable clause not exercised (A1)",
            id="an unknown MUST",
        ),
        pytest.param(
            [passed("S1", "D1", "O1", "G1", "A1")],
            {},
            Exit.INCONCLUSIVE,
            "inconclusive: 1 applicable clause not exercised (G1b)",
            id="an unknown SHOULD",
        ),
        pytest.param([], {}, Exit.INCONCLUSIVE, "inconclusive: nothing was tested", id="no results"),
        pytest.param([not_run(*ON_LOCAL)], {}, Exit.INCONCLUSIVE, "inconclusive: nothing was tested", id="all skipped"),
        pytest.param(
            [ALL, crashed("D1")],
            {},
            Exit.HARNESS_ERROR,
            "no verdict: 1 harness error in this suite, which says nothing about the transport",
            id="a crash outweighs conformant",
        ),
        pytest.param(
            [crashed("D1"), crashed("O1")],
            {},
            Exit.HARNESS_ERROR,
            "no verdict: 2 harness errors in this suite, which say nothing about the transport",
            id="a crash outweighs inconclusive",
        ),
        pytest.param(
            [ALL, crashed("D1"), broken("O1", breaks="O1")],
            {},
            Exit.BROKEN,
            "not conformant: 1 MUST clause broken (O1)",
            id="broken outweighs a crash",
        ),
        pytest.param(
            [passed("D1", "O1")],
            {"selected_all": False},
            Exit.INCONCLUSIVE,
            "partial run: 2 of 9 clauses exercised; not a verdict on the transport",
            id="a selection that passes",
        ),
        pytest.param(
            [ALL],
            {"selected_all": False},
            Exit.INCONCLUSIVE,
            "partial run: 6 of 9 clauses exercised; not a verdict on the transport",
            id="a selection never earns a verdict",
        ),
        pytest.param(
            [broken("D1", "O1", breaks="O1")],
            {"selected_all": False},
            Exit.BROKEN,
            "partial run: 2 of 9 clauses exercised; 1 MUST clause broken (O1)",
            id="a selection that fails",
        ),
    ],
)
def test_how_the_run_ends(results: list[CheckResult], flags: dict[str, Any], status: Exit, headline: str) -> None:
    verdict = judged(*results, **flags)
    assert (verdict.exit_status, verdict.headline) == (status, headline)


def test_unknown_on_one_engine_is_inconclusive() -> None:
    both = ("local", "ray")
    assert judged(ALL, passed(*ON_LOCAL, "R1", engine="ray"), engines=both).exit_status is Exit.CONFORMANT
    verdict = judged(ALL, passed(*ON_LOCAL, engine="ray"), engines=both)
    assert verdict.exit_status is Exit.INCONCLUSIVE
    assert worst(verdict.by_clause()["D1"]) is Status.PASS
    assert worst(verdict.by_clause()["R1"]) is Status.UNKNOWN


def test_an_engine_that_was_asked_for_and_found_nothing_is_not_forgotten() -> None:
    assert judged(ALL, engines=("local", "ray")).exit_status is Exit.INCONCLUSIVE


def test_results_of_an_engine_that_nobody_asked_for_count() -> None:
    verdict = judged(ALL, broken("D1", breaks="D1", engine="ray"))
    assert (verdict.engines, verdict.exit_status) == (("local", "ray"), Exit.BROKEN)


def test_unknown_without_right_or_wrong_does_not_matter() -> None:
    verdict = judged(ALL)
    assert on(verdict, "D5r").status is Status.UNKNOWN
    assert verdict.exit_status is Exit.CONFORMANT


def test_what_was_not_selected_says_so() -> None:
    assert on(judged(passed("D1"), selected_all=False), "O1").reason == "its checks were not selected, or not come to"


@pytest.mark.parametrize(
    ("bad", "abortable", "what"),
    [
        (broken("D1", breaks="Z9"), True, "says that Z9 is broken, which is not in the register"),
        (broken("A1", breaks="A1"), False, "says that A1 is broken, which binds transports that can abort only"),
        (broken("R1", breaks="R1"), True, "says that R1 is broken, which needs the cluster or ray engine"),
        (broken("D5r", breaks="D5r"), True, "says that D5r is broken, which has no right or wrong"),
        (result("broken", "D1"), True, "says that a clause is broken, but not which"),
        (crashed("D1"), True, "ZeroDivisionError in test_x"),
        (result("error", "D1"), True, "crashed without a reason"),
    ],
)
def test_mistakes_of_the_suite_are_not_held_against_the_transport(bad: CheckResult, abortable: bool, what: str) -> None:
    verdict = judged(ALL, bad, abortable=abortable)
    assert [error.what for error in verdict.harness_errors] == [what]
    assert verdict.exit_status is Exit.HARNESS_ERROR
    assert not any(result.status is Status.FAIL for result in verdict.clauses)


@pytest.mark.parametrize(
    ("results", "engines", "abortable", "level", "next_level", "blocked"),
    [
        pytest.param([], "local", True, None, "loads", [("S1", "unknown")], id="nothing"),
        pytest.param([passed("S1")], "local", True, "loads", "delivers", [("D1", "unknown")], id="one rung"),
        pytest.param(
            [passed("D1", "O1", "G1", "A1"), broken("S1", breaks="S1")],
            "local", True, None, "loads", [("S1", "broken")], id="no rung may be missing below",
        ),
        pytest.param(
            [ALL, broken("O1", breaks="O1")], "local", True, "delivers", "keeps order", [("O1", "broken")], id="broken"
        ),
        pytest.param(
            [ALL], "local", True, "aborts safely", "survives faults", [("R1", "needs the cluster or ray engine")],
            id="a rung that needs another engine",
        ),
        pytest.param(
            [ALL], "local", False, "cleans up", "survives faults", [("R1", "needs the cluster or ray engine")],
            id="a rung not claimed is not reached",
        ),
        pytest.param(
            [passed(*ON_LOCAL, "R1", engine="ray")], "ray", False, "survives faults", None, [],
            id="a rung not claimed is not in the way",
        ),
        pytest.param(
            [ALL, passed("S1", "R1", engine="ray"), broken("D1", breaks="D1", engine="ray")], "local ray", True,
            "loads", "delivers", [("D1", "broken")], id="the worst engine counts",
        ),
        pytest.param(
            [ALL, broken("G1b", breaks="G1b")], "local", True, "aborts safely", "survives faults",
            [("R1", "needs the cluster or ray engine")], id="SHOULD is no obstacle",
        ),
    ],
)  # fmt: skip
def test_the_ladder(
    results: list[CheckResult],
    engines: str,
    abortable: bool,
    level: str | None,
    next_level: str | None,
    blocked: list[tuple[str, str]],
) -> None:
    verdict = judged(*results, engines=tuple(engines.split()), abortable=abortable)
    assert (verdict.level.name if verdict.level else None) == level
    assert (verdict.next_level.name if verdict.next_level else None) == next_level
    assert [(obstacle.clause, obstacle.why) for obstacle in verdict.next_blocked_by] == blocked


@pytest.mark.parametrize("engine", ["cluster", "ray"])
def test_what_one_engine_found_is_not_held_against_another(engine: str) -> None:
    """Whichever comes first in the alphabet."""
    verdict = judged(passed("D1"), broken("D1", breaks="D1", engine=engine), engines=("local", engine))
    assert on(verdict, "D1").status is Status.PASS and on(verdict, "D1", engine).status is Status.FAIL


@pytest.mark.parametrize("other", ["A1", "O1"])
def test_what_broke_besides_is_not_told_of_a_clause(other: str) -> None:
    """Whichever comes first in the alphabet."""
    verdict = judged(result("broken", "D1", other, breaks=(other, "D1")))
    assert [failure.clause for failure in on(verdict, "D1").failures] == ["D1"]


@pytest.mark.parametrize("other", ["A1", "O1"])
def test_a_check_of_another_clause_that_did_not_run_hides_nothing(other: str) -> None:
    """Whichever comes first in the alphabet: only where it is the first clause of its check it was not tried."""
    assert on(judged(passed("D1"), not_run(other, "D1")), "D1").status is Status.PASS
    assert on(judged(passed("D1"), not_run("D1", other)), "D1").status is Status.UNKNOWN


def test_a_partial_run_reaches_no_level() -> None:
    assert not judged(ALL).partial
    verdict = judged(ALL, selected_all=False)
    assert verdict.partial
    assert (verdict.level, verdict.next_level, verdict.next_blocked_by) == (None, None, ())


def test_warnings_are_the_broken_should_clauses() -> None:
    verdict = judged(ALL, broken("G1b", breaks="G1b"), broken("G1", breaks="G1"))
    assert [warning.clause.id for warning in verdict.warnings] == ["G1b"]
    assert [result.clause.id for result in verdict.broken(Level.MUST)] == ["G1"]


def test_work_is_counted_and_what_did_not_run_is_not() -> None:
    ran = CheckResult("test_a", "local", ("D1",), "passed", examples=10, transfers=40, seconds=1.5)
    counts = judged(ran, ran, broken("O1", breaks="O1"), crashed("G1"), not_run("O1")).counts
    assert (counts.checks, counts.examples, counts.transfers, counts.seconds) == (4, 20, 80, 3.0)


def test_facts_are_kept_with_where_they_were_seen_but_not_those_of_a_crash() -> None:
    sound = CheckResult("test_a", "ray", ("D5r",), "passed", seen=("D5r",), facts={"delivers": "a snapshot"})
    crash = CheckResult("test_b", "ray", ("D5r",), "error", reason="boom", facts={"delivers": "nonsense"})
    guilty = CheckResult("test_c", "ray", ("D1",), "broken", failures=(Failure("D1", "."),), facts={"refuses": "none"})
    facts = judged(sound, crash, guilty).facts
    assert [(f.what, f.value, f.engine, f.check) for f in facts] == [
        ("delivers", "a snapshot", "ray", "test_a"),
        ("refuses", "none", "ray", "test_c"),
    ]


def test_clauses_are_in_the_order_of_the_areas_then_of_the_register() -> None:
    verdict = judged(engines=("local", "ray"))
    assert list(verdict.by_clause()) == [clause.id for clause in REGISTER]
    assert [result.engine for result in verdict.clauses[:2]] == ["local", "ray"]
