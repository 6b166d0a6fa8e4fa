"""A contract of a few clauses, and what a run on it found: for tests that look at every word of a report."""

from __future__ import annotations

from typing import cast

import pytest

import rdt_conformance
from rdt_conformance import contract
from rdt_conformance.capabilities import Capabilities
from rdt_conformance.contract import PROCESSES, Applies, Area, Clause, Level
from rdt_conformance.results import CheckResult, Failure, Step
from rdt_conformance.target import Target, ToldFact
from rdt_conformance.verdict import Verdict, judge

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


TARGET = cast(Target, FakeTarget())


def put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these clauses be the contract, and the suite be of a version that stays."""
    monkeypatch.setattr(contract, "CLAUSES", contract.register(REGISTER))
    monkeypatch.setitem(vars(rdt_conformance), "__version__", "1.2.3")
    monkeypatch.setenv("COLUMNS", "80")


def judged(results: list[CheckResult], *engines: str, selected_all: bool = True) -> Verdict:
    """The verdict on these results."""
    return judge(results, FakeTarget(), engines or ("local",), selected_all=selected_all)
