"""FIDELITY of this suite: the reference RDT, on which most checks run, does what Ray's own does.

The same generated programs are played on both, with the transport under test, and compared call by call. What differs
is a mistake of this suite or a limit of Ray's, never the transport's: it breaks no clause, and there is no verdict.
"""

from __future__ import annotations

import itertools
import time

from rdt_conformance.checks import self_check
from rdt_conformance.checks.bench import Bench
from rdt_conformance.fidelity.generate import programs
from rdt_conformance.fidelity.steps import ACTORS
from rdt_conformance.fidelity.study import Study, summary
from rdt_conformance.results import CheckResult

PROGRAMS = {"standard": 6, "thorough": 300}
SECONDS = {"standard": 30.0, "thorough": 1_200.0}
"""After that no program is begun, also on a machine that is much slower than most."""


@self_check("ray", tuple(PROGRAMS))
def test_the_reference_does_what_ray_does(bench: Bench) -> CheckResult:
    name = "test_the_reference_does_what_ray_does"
    result = CheckResult(name, bench.engine, (), "passed")
    obstacle = bench.carries.refusal or bench.lack_of_gpus(len(ACTORS))
    if obstacle:
        result.outcome, result.reason = "not run", obstacle
        result.facts = {"fidelity programs": 0}
        return result
    began, transfers = time.monotonic(), bench.transfers
    reference = bench.beside("cluster")
    try:
        study = Study(reference, bench)
        wanted = PROGRAMS[bench.profile]
        chosen = itertools.islice(programs(bench.seed_for(name), study.traits), wanted)
        findings = study.compare(chosen, SECONDS[bench.profile])
        if bench.profile == "thorough":
            study.check_limits(findings)
        result.transfers = bench.transfers - transfers + reference.transfers
    finally:
        reference.close()
    result.examples, result.facts = findings.programs, findings.facts()
    if findings.programs < wanted:
        result.facts["fidelity programs"] = f"{findings.programs} of {wanted}, then time was over"
    result.seconds = time.monotonic() - began
    if findings.certain:
        result.outcome, result.reason = "error", summary(findings)
    return result
