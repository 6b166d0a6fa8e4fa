"""Which faulty transport each check catches alone, by the clause that this one breaks.

    python -m tests.power.proofs --only=test_abort

That a clause has caught something says nothing of each of its checks: one that never did proves nothing. What is on
record in ``proofs.json`` for the same text of check and transport stays; anything else is looked for anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does for the tests, which share this one

import faulty_runs

from rdt_conformance.checks.check import CheckSpec
from rdt_conformance.contract import clause
from rdt_conformance.engines.ray_session import RaySession
from rdt_conformance.options import ENGINES

RECORD = Path(__file__).parent / "proofs.json"
SEEDS = (1, 2, 3)


def load() -> dict[str, dict[str, str]]:
    """By check: the ``target`` that it has caught, on which ``engine``, and what stands for the ``text`` of both."""
    return json.loads(RECORD.read_text())


def main() -> None:
    """Look for what is missing, and put it on record."""
    parser = argparse.ArgumentParser(prog="python -m tests.power.proofs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="PART", help="checks whose name has this in it")
    only = parser.parse_args().only
    record = load() if RECORD.exists() else {}
    checks = faulty_runs.to_be_proven()
    with ExitStack() as stack:
        address: str | None = None
        for check in checks:
            if only not in check.name or (check.name in record and _holds(check, record[check.name])):
                continue
            record.pop(check.name, None)
            for target, engine in _candidates(check):
                if engine != "local":
                    address = address or stack.enter_context(RaySession(nodes=2, seconds=180)).address
                if _catches(check, target, engine, address):
                    text = faulty_runs.proof_of(check, target)
                    record[check.name] = {"target": target, "engine": engine, "text": text}
                    break
            print(check.name, record.get(check.name, "has caught nothing"), flush=True)
            names = [each.name for each in checks if each.name in record]
            lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(record[name])}" for name in names)
            RECORD.write_text(f"{{\n{lines}\n}}\n")
    faulty_runs.remove_left_files()


def _holds(check: CheckSpec, proof: dict[str, str]) -> bool:
    return proof["target"] in faulty_runs.TARGETS and proof["text"] == faulty_runs.proof_of(check, proof["target"])


def _candidates(check: CheckSpec) -> Iterator[tuple[str, str]]:
    """Transports that break one of its clauses, the first clause's before others', each on the quickest engine."""
    can = clause(check.clauses[0]).engines & ({check.engine} if check.engine else set(ENGINES))
    can = can & {"local"} if check.interleaves else can
    for clause_id in check.clauses:
        for target in faulty_runs.TARGETS:
            engines = [engine for engine in faulty_runs.engines_of(target) if engine in can]
            if faulty_runs.broken_by(target).id == clause_id and engines:
                yield target, engines[0]


def _catches(check: CheckSpec, target: str, engine: str, address: str | None) -> bool:
    joined = None if engine == "local" else address
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            run = faulty_runs.run_checks(target, engine, Path(folder), "standard", seed, joined, check=check.name)
        if faulty_runs.broken_by(target).id in run.broken():
            return True
    return False


if __name__ == "__main__":
    main()
