"""Whether the suite works on several versions of Ray: the reference transports are right on each of them.

    python -m tests.compat --versions=2.57.0,2.60.0 --transports=inline,tcp --folder=/somewhere

Each version gets an environment of its own, made from ``constraints.txt`` with that version in place of the pinned one.
If the folder is named, it stays and is used again. A transport passes if the suite calls it conformant. Every step is
bounded in time; the exit status is 1 if a version could not be installed or a transport did not pass, and 2 for a wrong
option.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
VERSIONS = "2.57.1,2.58.1,2.59.0,2.60.0"
"""The newest patch release of each minor version that is supported."""
TRANSPORTS = "inline,shared-memory,tcp,gloo"
"""One of each kind: one-sided without anything to clean up and with, two-sided by sockets and by groups."""
INSTALL_SECONDS = 900.0
ENDING_SECONDS = 20.0
"""For a run that took too long to end what it has started."""


class CompatProblem(Exception):
    """Something without which there is no verdict; one line says what."""


@dataclass(frozen=True)
class Outcome:
    """What came of one transport on one version."""

    passed: bool
    told: str
    seconds: float = 0.0


def main() -> int:
    """Run what was asked for, and print each verdict as it is known and all of them in the end."""
    options = _options()
    outcomes: dict[tuple[str, str], Outcome] = {}
    with _folder(options.folder) as folder:
        for version in options.versions:
            try:
                python = _environment(folder, version)
            except CompatProblem as problem:
                outcomes |= {(version, transport): Outcome(False, str(problem)) for transport in options.transports}
                print(f"ray {version}: {problem}", flush=True)
                continue
            for transport in options.transports:
                outcome = _judge(python, transport, folder / "runs" / version / transport, options)
                outcomes[version, transport] = outcome
                print(_row(version, transport, outcome), flush=True)
    failed = [key for key, outcome in outcomes.items() if not outcome.passed]
    print(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} passed")
    for version, transport in failed:
        print(_row(version, transport, outcomes[version, transport]))
    return 1 if failed else 0


def _environment(folder: Path, version: str) -> Path:
    """The interpreter of an environment with this version of Ray.

    Raises:
        CompatProblem: it cannot be had.
    """
    place = folder / f"ray-{version}"
    done = place / "installed"
    python = place / "bin" / "python"
    if done.exists():
        return python
    print(f"ray {version}: making {place}", flush=True)
    venv.create(place, clear=True, with_pip=True)
    constraints = place / "constraints.txt"
    constraints.write_text(re.sub(r"^ray==.*$", f"ray=={version}", CONSTRAINTS.read_text(), flags=re.MULTILINE))
    # Not editable, so that it is what users install; from a copy of nothing but the checkout, as everywhere.
    command = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraints), str(ROOT)]
    status, printed = _bounded(command, place / "installing.txt", INSTALL_SECONDS)
    if status is None:
        raise CompatProblem(f"installing it did not end within {INSTALL_SECONDS:g} s")
    if status:
        told = [line for line in printed.splitlines() if line.startswith("ERROR:")] or printed.splitlines() or ["?"]
        raise CompatProblem(f"it cannot be installed here: {told[0].removeprefix('ERROR:').strip()}")
    done.touch()
    return python


def _judge(python: Path, transport: str, folder: Path, options: argparse.Namespace) -> Outcome:
    """Run the suite on one transport, and take its verdict from the report."""
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [str(python.with_name("pytest")), f"--transport={transport}", f"--rdt-engine={options.engines}"]
    command += [f"--rdt-profile={options.profile}", f"--rdt-seed={options.seed}", f"--rdt-report={folder}"]
    began = time.monotonic()
    status, printed = _bounded([*command, "-p", "no:cacheprovider"], folder / "printed.txt", options.seconds)
    took = time.monotonic() - began
    if status is None:
        last = printed.strip().splitlines()[-1:] or ["nothing printed"]
        return Outcome(False, f"did not end within {options.seconds:g} s: {last[0]}", took)
    if not report.exists():
        last = printed.strip().splitlines()[-1:] or ["it printed nothing"]
        return Outcome(False, f"no report, exit status {status}: {last[0]}", took)
    return Outcome(status == 0, json.loads(report.read_text())["verdict"]["headline"], took)


def _bounded(command: Sequence[str], file: Path, seconds: float) -> tuple[int | None, str]:
    """The exit status of a command, None if it did not end in time and was ended, and what it printed into a file."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with file.open("w") as printed:
        running = subprocess.Popen(
            command,
            cwd=file.parent,
            env=inherited | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = running.wait(seconds)
        if status is None:
            _end(running)
    return status, file.read_text(errors="replace")


def _end(running: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that a run ends the Ray that it has started; if that is no use, at once."""
    running.send_signal(signal.SIGINT)
    try:
        running.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)  # its Ray notices that it is gone
        running.wait()


def _row(version: str, transport: str, outcome: Outcome) -> str:
    said = "passed" if outcome.passed else "FAILED"
    return f"ray {version:<8} {transport:<14} {said} {outcome.seconds:5.0f} s  {outcome.told}"


@contextlib.contextmanager
def _folder(named: Path | None) -> Iterator[Path]:
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        yield named.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="rdt-compat-") as temporary:
        yield Path(temporary)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--versions", type=_versions, default=VERSIONS, metavar="LIST", help=f"of Ray (default: {VERSIONS})")
    add("--transports", type=_listed, default=TRANSPORTS, metavar="LIST", help=f"(default: {TRANSPORTS})")
    add("--engines", default="local,cluster,ray", metavar="LIST", help="those of --rdt-engine")
    add("--profile", default="quick", metavar="NAME", help="that of --rdt-profile")
    add("--seed", type=int, default=1, help="of everything that is chosen")
    add("--seconds", type=float, default=600.0, help="the most that a run on one transport may take")
    add("--folder", type=Path, metavar="DIR", help="where environments and reports go, and stay (default: nowhere)")
    return parser.parse_args()


def _listed(text: str) -> list[str]:
    found = [part for part in re.split(r"[,\s]+", text) if part]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return found


def _versions(text: str) -> list[str]:
    found = _listed(text)
    for version in found:
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            raise argparse.ArgumentTypeError(f"{version!r} is no version of Ray; they look like 2.60.0")
    return found


if __name__ == "__main__":
    sys.exit(main())
