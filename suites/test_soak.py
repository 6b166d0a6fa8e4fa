"""SOAK: random work on Ray for as long as asked, in which actors die. See `rdt_conformance.checks.soak`."""

from __future__ import annotations

from rdt_conformance.checks import whole_check
from rdt_conformance.checks.bench import Bench
from rdt_conformance.checks.soak_run import CLAUSES, Soak
from rdt_conformance.options import SOAK
from rdt_conformance.results import CheckResult


@whole_check(*CLAUSES, engine="ray", profiles=(SOAK,))
def test_long_work_with_deaths(bench: Bench) -> CheckResult:
    return Soak(bench, "test_long_work_with_deaths").run()
