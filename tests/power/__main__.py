"""How likely each faulty transport is caught, and a good one slandered: runs that differ only by their seed.

    python -m tests.power --runs=20 --profiles=quick,standard --only=abort

Runs the checks of the broken clause on each faulty transport, and the whole local suite on each good one. What is on
record in ``reports/power.json`` for the same text of transport and checks is topped up; anything else begins anew. The
profile "a sixth of quick" is of the good ones alone: short runs, of other checks with each seed.
Every report shows these numbers, since a green result means as much as the suite can catch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does for the tests, which share these two

import faulty_runs
from suite_run import run_suite_forked

from rdt_conformance.engines.ray_session import RaySession
from rdt_conformance.options import SOAK
from rdt_conformance.power import PART, Tally, load, save
from rdt_conformance.words import count

GOOD = ("inline", "shared-memory", "cross-memory", "socket-pull", "tcp", "gloo")


def main() -> None:
    """Make the runs that are missing, and put each on record as it ends."""
    options = _options()
    tallies = load()
    wanted = [tally for tally in _wanted(options) if options.only in tally.target]
    for tally in wanted:
        if (known := tallies.get(tally.key)) and known.text == tally.text:
            tally.hits, tally.seconds = known.hits, known.seconds
        tallies[tally.key] = tally
    missing = [tally for tally in wanted if len(tally.hits) < options.runs]
    with ExitStack() as stack, ThreadPoolExecutor(options.jobs) as pool:
        address = None
        if any(tally.engine != "local" for tally in missing):
            address = stack.enter_context(RaySession(nodes=2, seconds=180)).address
        running = {pool.submit(_top_up, tally, options.runs, address): tally for tally in missing}
        for number, done in enumerate(as_completed(running), 1):
            tally = running[done]
            done.result()
            save(tallies)
            print(f"{number}/{len(missing)} {_told(tally)}", flush=True)
    faulty_runs.remove_left_files()
    known = {*faulty_runs.TARGETS, *faulty_runs.SOAK_TARGETS, *GOOD}
    save({key: tallies[key] for key in tallies if key[0] in known})


def _wanted(options: argparse.Namespace) -> Iterator[Tally]:
    for profile in options.profiles:
        for target in faulty_runs.TARGETS:
            if profile == "standard" or profile == faulty_runs.needed_profile(target):
                clause = faulty_runs.broken_by(target).id
                yield Tally(target, profile, faulty_runs.engine_of(target), clause, faulty_runs.text_of(target))
        for target in () if profile == SOAK else GOOD:
            yield Tally(target, profile, "local")
    for target in faulty_runs.SOAK_TARGETS if SOAK in options.profiles else ():
        clause = faulty_runs.broken_by(target).id
        yield Tally(target, SOAK, faulty_runs.engine_of(target), clause, faulty_runs.text_of(target))


def _top_up(tally: Tally, runs: int, address: str | None) -> None:
    for seed in range(len(tally.hits) + 1, runs + 1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            hit = _slandered(tally, seed, Path(folder)) if not tally.clause else _caught(tally, seed, folder, address)
        tally.hits.append(hit)
        tally.seconds.append(round(time.monotonic() - began, 1))


def _caught(tally: Tally, seed: int, folder: str, address: str | None) -> bool:
    joined = None if tally.engine == "local" else address
    try:
        run = faulty_runs.run_checks(tally.target, tally.engine, Path(folder), tally.profile, seed, joined)
    except TimeoutError as error:
        print(f"\n{tally.target} with seed {seed}: {error}", flush=True)
        return False
    return tally.clause in run.broken()


def _slandered(tally: Tally, seed: int, folder: Path) -> bool:
    options = [f"--rdt-seed={seed}", "--rdt-engine=local", "--benchmark-skip"]
    if tally.profile == PART:
        options += ["--rdt-profile=quick", "-k", faulty_runs.part(seed, of=6)]
    else:
        options += [f"--rdt-profile={tally.profile}"]
    run = run_suite_forked(folder, tally.target, *options, seconds=300)
    right = (0, 8) if tally.profile == PART else (0,)  # a part of the checks is no verdict
    if run.status not in right:
        print(f"\n{tally.target} with seed {seed}:\n{run.printed}", flush=True)
    return run.status not in right


def _told(tally: Tally) -> str:
    said = f"broke {tally.clause}, caught" if tally.clause else "false alarms"
    return (
        f"{tally.target} {tally.profile} {tally.engine}: {said} in {sum(tally.hits)} of {count(len(tally.hits), 'run')}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.power", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="of each transport in each profile")
    parser.add_argument(
        "--profiles", type=lambda text: text.split(","), default=["quick", "standard", SOAK], metavar="LIST"
    )
    parser.add_argument("--only", default="", metavar="PART", help="transports whose name has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    return parser.parse_args()


if __name__ == "__main__":
    main()
