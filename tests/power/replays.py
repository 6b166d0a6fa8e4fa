"""Whether the command that a failure ends with shows it again: of faulty transports drawn at random.

    python -m tests.power.replays --number=20 --seed=1

Each is judged as a user would; the command of its first failure is then pasted into a fresh shell.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does for the tests, which share these two

import faulty_runs
from suite_run import ROOT

_SECONDS = 300


def main() -> None:
    """Draw, run, replay, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.power.replays", description=__doc__)
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    options = parser.parse_args()
    drawn = random.Random(options.seed).sample(sorted(faulty_runs.TARGETS), options.number)
    found = [_shown_again(target) for target in drawn]
    faulty_runs.remove_left_files()
    failed = [again for again in found if again is not None]
    print(f"{len(failed)} of {len(found)} failed at once; of these {sum(failed)} were shown again by their command")


def _shown_again(target: str) -> bool | None:
    """None: there was no failure to show again."""
    broken = faulty_runs.broken_by(target).id
    engine = faulty_runs.engine_of(target)
    with tempfile.TemporaryDirectory() as folder:
        profile = faulty_runs.needed_profile(target)
        options = f"--rdt-profile={profile} --rdt-engine={engine} --rdt-seed=1 --rdt-clause={broken}"
        printed = _shell(f"pytest --transport={target} {options}", folder)
        commands = re.findall(r"^ *(?:replay: +)?(pytest --transport=\S.* --rdt-replay=\S+)$", printed, re.M)
        replay = _shell(commands[0], folder) if commands else ""
    again = re.search(rf"^{broken} (MUST|SHOULD) broken", replay, re.M) is not None
    told = ("shown again" if again else f"NOT shown again:\n{replay}") if commands else f"did not fail:\n{printed}"
    print(f"{target} ({engine}): {broken} {told}", flush=True)
    return again if commands else None


def _shell(command: str, folder: str) -> str:
    """What a command prints in a shell that knows nothing but where programs and this checkout are."""
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "HOME": folder, "PYTHONPATH": str(ROOT)}
    run = ["bash", "-c", command]
    return subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, timeout=_SECONDS).stdout


if __name__ == "__main__":
    main()
