"""Every clause has a check, or a written reason why not; and never both."""

from __future__ import annotations

import re

import pytest

from rdt_conformance import paths
from rdt_conformance.contract import CLAUSES, Clause
from rdt_conformance.coverage import checks_by_clause

COVERING = checks_by_clause()


@pytest.mark.parametrize("clause", CLAUSES.values(), ids=lambda clause: clause.id)
def test_a_check_or_a_reason(clause: Clause) -> None:
    assert bool(COVERING.get(clause.id)) != bool(clause.untested), COVERING.get(clause.id)


def test_check_names_are_unique() -> None:
    names = [name for path in paths.suite_files() for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)]
    assert sorted(names) == sorted(set(names))
