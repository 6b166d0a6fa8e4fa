"""Runs the shipped suites in a process of their own, as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
INSTALLED = bool(entry_points(group="pytest11", name="rdt_conformance"))


def command(transport: str, *options: str) -> list[str]:
    """The command line of a run; pytest refuses ``-p`` for a plugin that is installed."""
    loaded = [] if INSTALLED else ["-p", "rdt_conformance.plugin"]
    return [sys.executable, "-m", "pytest", *loaded, "-p", "no:cacheprovider", f"--transport={transport}", *options]


def environment() -> dict[str, str]:
    """The environment of a run: the checkout can be imported from any folder."""
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class SuiteRun:
    """What a run left: its exit status, what it printed and its report."""

    status: int
    printed: str
    report: dict[str, Any]

    def broken(self) -> set[str]:
        """The clauses that failed."""
        return {
            clause["id"]
            for clause in self.report["clauses"]
            if any(result["status"] == "fail" for result in clause["results"])
        }


def run_suite(folder: Path, transport: str, *options: str, seconds: float = 120) -> SuiteRun:
    """Run the suites on a transport from `folder`.

    Raises:
        subprocess.TimeoutExpired: the run did not end within `seconds`.
    """
    run = subprocess.run(
        command(transport, f"--rdt-report={folder}/report", *options),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    path = folder / "report" / "report.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    return SuiteRun(run.returncode, run.stdout, report)
