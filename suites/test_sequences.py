"""ORDERING: whatever may be done with objects, in any order. See `rdt_conformance.checks.sequences`."""

from __future__ import annotations

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.sequences import Program


@check("O1", situational=("L5", "M6", "F5", "A8"), tries=5)
def test_any_sequence_of_steps(case: Case) -> None:
    program = Program(case, case.up_to(3))
    most = st.integers(1, 15)  # the larger of two, as most trouble takes several steps
    for _ in range(max(case.choose(most), case.choose(most))):
        program.step()
    program.end()
    case.fact("situations in sequences", dict(program.situations))


@check("R2", situational=("R2", "O1", "L5", "M6", "F5", "A8"))
def test_any_sequence_of_steps_around_a_death(case: Case) -> None:
    """As before, but an actor is killed in between. Everybody receives from everybody, before that and after it."""
    program = Program(case, case.up_to(3))
    program.meet()
    for _ in range(case.choose(st.integers(0, 6))):
        program.step()
    program.die()
    program.meet()
    for _ in range(case.choose(st.integers(0, 6))):
        program.step()
    program.end()
    ended = [name for name, by_itself in case.world.died().items() if by_itself]
    case.require(not ended, "R2", f"the process of {' and of '.join(ended)} ended, and nobody had ended it")
    case.fact("situations in sequences", dict(program.situations))
