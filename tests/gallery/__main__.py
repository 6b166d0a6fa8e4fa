"""Real reports of the reference transports and of Ray's own, for ``reports/gallery``: one run after the other.

    python -m tests.gallery --profile=standard tcp ray:NIXL
    python -m tests.gallery --devices=cuda cuda-ipc

The second form is for a machine with GPUs: those that need two are told so by their own report.

What is measured is only worth something on a machine that does nothing else meanwhile. A report that tells where this
machine keeps things is not kept.
"""

from __future__ import annotations

import argparse
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does for the tests, which share this one

from suite_run import ROOT, command, environment

from rdt_conformance.report import folder as report_folder, json_report
from rdt_conformance.report.saving import ReportProblem
from rdt_conformance.report.view import RunView
from rdt_conformance.verdict import Exit
from rdt_conformance.words import listed

GALLERY = ROOT / "reports" / "gallery"
CPU, CUDA = "cpu", "cuda"
TARGETS = (
    "inline", "shared-memory", "cross-memory", "socket-pull", "tcp", "gloo", "nixl", "ray:NIXL", "ray:GLOO",
)  # fmt: skip
"""Those that work without a GPU."""
GPU_TARGETS = ("cuda-ipc", "nccl", "nixl", "ray:CUDA_IPC", "ray:NCCL", "ray:NIXL")
"""Those that carry GPU memory; on the engines where every actor has a GPU as Ray gives it."""
SECONDS = 2400
"""What one run may take."""
WHY_NOT = "why-not.txt"
_VERDICTS = (Exit.CONFORMANT, Exit.BROKEN, Exit.INCONCLUSIVE)
_EVERYBODY = ("root", "localhost")
"""Names of users and machines that tell nothing."""


class NotMade(Exception):
    """There is no report, for a reason that takes a line."""


def main() -> int:
    """Make the reports that were asked for, and the pages that lead to all of them."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))  # the run at hand is ended too
    for target in options.targets:
        print(f"{target} ...", flush=True)
        print(f"{target}: {_make(target, options.profile, options.devices, options.workers)}", flush=True)
    print(_index())
    return 0


def _make(target: str, profile: str, devices: str, workers: int) -> str:
    """Put a report of one transport into the gallery, or the reason why there is none; in a line."""
    place = GALLERY / _name(target, devices)
    with tempfile.TemporaryDirectory() as work:
        made = Path(work) / "report"
        try:
            on_gpus = ["--rdt-devices=cuda", "--rdt-engine=cluster,ray"] if devices == CUDA else []
            side_by_side = [f"--numprocesses={workers}"] if workers else []
            _run(target, [f"--rdt-profile={profile}", *on_gpus, *side_by_side], Path(work), made)
            _demand_discretion(made)
        except NotMade as reason:
            made.mkdir(exist_ok=True)
            for file in made.iterdir():
                file.unlink()
            (made / WHY_NOT).write_text(f"{reason}\n", encoding="utf-8")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(made, place)
    return _told(place)


def _run(target: str, options: Sequence[str], work: Path, made: Path) -> None:
    """Run the suite as a user does.

    Raises:
        NotMade: it came to no verdict.
    """
    with (work / "printed").open("w+") as printed:
        run = subprocess.Popen(
            command(target, *options, f"--rdt-report={made}", "--rdt-seed=1"),
            cwd=work,
            env=environment(),
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = run.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise NotMade(f"it did not end within {SECONDS} s") from None
        finally:
            _end(run)
        printed.seek(0)
        lines = [line for line in printed.read().splitlines() if line.strip()]
    if status not in _VERDICTS or not (made / json_report.FILE_NAME).is_file():
        raise NotMade(f"it ended with status {status}: {lines[-1] if lines else 'it said nothing'}")


def _end(run: subprocess.Popen[bytes]) -> None:
    """End what a run has left, which is in its session."""
    try:
        os.killpg(run.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    run.wait()


def _demand_discretion(made: Path) -> None:
    """Make sure that nothing in a report is about this machine alone.

    Raises:
        NotMade: something is.
    """
    private = {str(ROOT), str(Path.home()), sys.prefix, getpass.getuser(), socket.gethostname()} - {*_EVERYBODY, "/"}
    for file in sorted(made.iterdir()):
        text = file.read_text(encoding="utf-8")
        for word in private:
            if len(word) > 3 and word in text:
                raise NotMade(f"its {file.name} tells what is private: {word!r}")


def _index() -> Path:
    """Write the page that compares all reports there are, and the list of them."""
    reports = list(_reports())
    if len(reports) > 1:
        report_folder.write_comparison(GALLERY, reports)
    lines = [
        "# Real reports",
        "",
        "Made by `make gallery`, which runs the suite on each transport that works without a GPU, and with",
        "`python -m tests.gallery --devices=cuda` on a machine that has some. What it ran on is told by each report.",
        *(["[All of them side by side](comparison.html).", ""] if len(reports) > 1 else [""]),
        "| transport | memory | | verdict |",
        "|---|---|---|---|",
    ]
    for target, devices in _all():
        place = GALLERY / _name(target, devices)
        pages = f"[report]({place.name}/report.html), [summary]({place.name}/summary.md)"
        lines.append(
            f"| `{target}` | {devices} | {pages if (place / 'report.html').is_file() else ''} | {_told(place)} |"
        )
    path = GALLERY / "README.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _reports() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for target, devices in _all():
        path = GALLERY / _name(target, devices) / json_report.FILE_NAME
        try:
            yield path, json_report.read(path)
        except ReportProblem:  # the list says so
            continue


def _told(place: Path) -> str:
    """What there is of a transport, in a line."""
    if (place / WHY_NOT).is_file():
        return f"could not be made: {(place / WHY_NOT).read_text(encoding='utf-8').strip()}"
    if not place.is_dir():
        return "not made yet"
    try:
        view = RunView(json_report.read(place / json_report.FILE_NAME))
    except ReportProblem as problem:
        return f"cannot be used any more: {str(problem).removeprefix(f'{place}/')}"
    level = view.verdict["level"]
    reached = f"level {level['number']}" if level else "no level"
    return f"{view.word}, {reached}; profile {view.environment['profile']}, {listed(view.engines)}"


def _all() -> list[tuple[str, str]]:
    """Every transport, with the kind of memory that is sent."""
    return [(target, CPU) for target in TARGETS] + [(target, CUDA) for target in GPU_TARGETS]


def _name(target: str, devices: str) -> str:
    plain = target.replace(":", "-").lower()
    return plain if devices == CPU else f"{devices}-{plain}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gallery", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TRANSPORT",
        help=f"default: {' '.join(TARGETS)}; with GPUs: {' '.join(GPU_TARGETS)}",
    )
    parser.add_argument("--devices", choices=(CPU, CUDA), default=CPU, help="the memory that is sent (default: cpu)")
    parser.add_argument("--profile", default="standard", help="how much is tried (default: standard)")
    parser.add_argument("--workers", type=int, default=0, help="of pytest-xdist; then nothing is measured (default: 0)")
    options = parser.parse_args()
    known = GPU_TARGETS if options.devices == CUDA else TARGETS
    if unknown := [target for target in options.targets if target not in known]:
        parser.error(f"not in the gallery: {', '.join(unknown)}; choose from {', '.join(known)}")
    options.targets = options.targets or known
    return options


if __name__ == "__main__":
    sys.exit(main())
