"""The transports that are wrong on purpose, and how the checks of the clause that one breaks are run on it."""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
from collections.abc import Set
from pathlib import Path

from suite_run import ROOT, SuiteRun, run_suite_forked

from rdt_conformance.checks import soak, soak_run
from rdt_conformance.checks.check import CheckSpec
from rdt_conformance.contract import Applies, Area, Clause, clause
from rdt_conformance.coverage import all_checks
from rdt_conformance.observe import drift
from rdt_conformance.options import ENGINES, SOAK
from reference_transports.faulty import FILES, NEEDS_CUDA, ONLY_IN_A_SOAK, RIGHT_IN_ONE_PROCESS, every_faulty

FAULTY = every_faulty()
_ALL = {f"{transport.__module__}:{transport.__name__}": transport for transport in FAULTY}
TARGETS = {target: transport for target, transport in _ALL.items() if transport not in NEEDS_CUDA | ONLY_IN_A_SOAK}
"""Every faulty transport that can be caught without a GPU or a soak, by what names it on the command line."""
SOAK_TARGETS = {target: transport for target, transport in _ALL.items() if transport in ONLY_IN_A_SOAK}
"""Those that take a soak."""
GPU_TARGETS = {target: transport for target, transport in _ALL.items() if transport in NEEDS_CUDA}
"""Those that cannot."""
CHECKS = all_checks()
SOAK_MINUTES = 1
"""In which a soak has to catch what takes one."""
_SEQUENCES = "test_any_sequence_of_steps"


def broken_by(target: str) -> Clause:
    """The clause that a faulty transport breaks."""
    return clause(FAULTY[_ALL[target]])


def engine_of(target: str) -> str:
    """The quickest engine on which it does."""
    return engines_of(target)[0]


def engines_of(target: str) -> list[str]:
    """The engines on which it does, the quickest first."""
    if target in SOAK_TARGETS:
        return ["ray"]
    possible = broken_by(target).engines - ({"local"} if _ALL[target] in RIGHT_IN_ONE_PROCESS else set())
    return [engine for engine in ENGINES if engine in possible]


def needed_profile(target: str) -> str:
    """The least profile that is to catch it: whether threads, or several steps, meet is a matter of tries."""
    if target in SOAK_TARGETS:
        return SOAK
    return "standard" if broken_by(target).area is Area.CONCURRENCY or _by_sequences(target) else "quick"


def _by_sequences(target: str) -> bool:
    return target.startswith("reference_transports.faulty.sequences:")


def text_of(target: str) -> str:
    """Stands for the text of a faulty transport and of the checks that shall catch it: other text, other chances."""
    if target in SOAK_TARGETS:
        return _digest([inspect.getsource(each) for each in (_ALL[target], soak, soak_run, drift)])
    bodies = [inspect.getsource(check.body) for check in _checks_of(broken_by(target))]
    return _digest([inspect.getsource(_ALL[target]), *bodies])


def _checks_of(broken: Clause) -> list[CheckSpec]:
    """Those that can decide a clause, but for a soak, which has its own test."""
    return [check for check in CHECKS if broken.id in check.clauses and not check.profiles]


def proof_of(check: CheckSpec, target: str) -> str:
    """Stands for the text of a check and of a transport that it has caught alone."""
    return _digest([inspect.getsource(_ALL[target]), inspect.getsource(check.body)])


def to_be_proven() -> list[CheckSpec]:
    """Every check that can catch one of these transports: not those that need GPUs, or take a soak."""
    broken = {broken_by(target).id for target in TARGETS}
    return [check for check in CHECKS if not check.profiles and check.clauses and check.clauses[0] in broken]


def share(targets: list[str], of: int) -> list[str]:
    """One part of so many, drawn anew with every change of the harness or of a transport."""
    folders = ("rdt_conformance", "reference_transports", "suites")
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    whole = _digest([path.read_text() for path in files])
    return [target for target in targets if int(_digest([whole, target]), 16) % of == 0]


def left_files() -> set[Path]:
    """What faulty transports have left behind in shared memory, as some do to be caught for it."""
    return set(Path("/dev/shm").glob(f"{FILES}*"))


def remove_left_files(besides: Set[Path] = frozenset()) -> None:
    """Remove these, but for some."""
    for left in left_files() - besides:
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def part(seed: int, of: int) -> str:
    """One part of so many of the checks, drawn by the seed, as ``-k`` takes it."""
    return " or ".join(c.name for c in CHECKS if not c.profiles and int(_digest([str(seed), c.name]), 16) % of == 0)


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def run_checks(
    target: str,
    engine: str,
    folder: Path,
    profile: str,
    seed: int = 1,
    address: str | None = None,
    *,
    small: bool = False,
    check: str = "",
) -> SuiteRun:
    """Run the checks of the clause that it breaks; where each of them takes seconds, until one catches something.

    Args:
        target: the faulty transport.
        engine: where.
        folder: of the run, which is left with a report in it.
        profile: how much is tried.
        seed: of everything that is drawn.
        address: of the Ray to join, for any engine but local.
        small: failing examples are made as small as in any run.
        check: run this one alone.

    Raises:
        TimeoutError: the run did not end, and was killed.
    """
    broken = broken_by(target)
    # Checks that are run alone may take their time; sequences would share it, and are for what nothing else can catch.
    names = " or ".join(check.name for check in _checks_of(broken) if check.name != _SEQUENCES)
    if _by_sequences(target):
        names = _SEQUENCES
    names = f"{check}[" if check else names
    options = [f"--rdt-profile={profile}", f"--rdt-seed={seed}", f"--rdt-engine={engine}"]
    options += [f"--rdt-minutes={SOAK_MINUTES}"] if profile == SOAK else ["-k", names]
    options += ["--rdt-devices=cuda"] if target in GPU_TARGETS else []
    if address is None:
        return run_suite_forked(folder, target, *options, small=small)
    nodes = 2 if broken.applies is Applies.SEVERAL_NODES else 1
    options += [f"--rdt-address={address}", f"--rdt-nodes={nodes}", "-x"]
    return run_suite_forked(folder, target, *options, token=os.environ["RAY_AUTH_TOKEN_PATH"], seconds=300, small=small)
