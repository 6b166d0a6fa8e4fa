"""How long the histories are that a failure shows: of each faulty transport, on the quickest engine that catches it.

    python -m tests.power.histories --only=abort --jobs=2

A failure shows two things, each made as small as it gets: what the check chose (the example), and the history that led
there: calls into the transport, and where they were stopped. Both are counted in lines. Of a transport with several
failures of its clause the one with the shortest history counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does for the tests, which share this

import faulty_runs


def main() -> None:
    """Run, print a line for each, and the medians of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.power.histories", description=__doc__)
    parser.add_argument("--only", default="", metavar="PART", help="transports whose name has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    options = parser.parse_args()
    targets = [t for t in faulty_runs.TARGETS if options.only in t and faulty_runs.engine_of(t) == "local"]
    lengths: list[tuple[int, int]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for target, found in zip(targets, pool.map(_lengths, targets), strict=True):
            print(target, "not caught" if found is None else f"example {found[0]}, history {found[1]}", flush=True)
            lengths += [] if found is None else [found]
    faulty_runs.remove_left_files()
    if not lengths:
        sys.exit("none was caught")
    examples, histories = zip(*lengths, strict=True)
    print(f"{len(lengths)} of {len(targets)} caught; median example {median(examples):g} (at most {max(examples)}),")
    print(f"median history {median(histories):g} (at most {max(histories)})")


def _lengths(target: str) -> tuple[int, int] | None:
    with tempfile.TemporaryDirectory() as folder:
        profile = faulty_runs.needed_profile(target)
        run = faulty_runs.run_checks(target, "local", Path(folder), profile, small=True)
    broken = faulty_runs.broken_by(target).id
    failures = [
        failure for check in run.report["checks"] for failure in check["failures"] if failure["clause"] == broken
    ]
    if not failures:
        return None
    shortest = min(failures, key=lambda failure: len(failure["history"]))
    return len(shortest["example"]), len(shortest["history"])


if __name__ == "__main__":
    main()
