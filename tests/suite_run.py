"""Runs the shipped suites in a process of their own, as a user does."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from rdt_conformance.checks.budget import PROFILES
from rdt_conformance.engines.ray_connection import token_shown

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
        return self._clauses("fail")

    def passed(self) -> set[str]:
        """The clauses that held."""
        return self._clauses("pass")

    def _clauses(self, status: str) -> set[str]:
        """Those that have this status on an engine."""
        return {
            clause["id"]
            for clause in self.report["clauses"]
            if any(result["status"] == status for result in clause["results"])
        }


def run_suite_forked(
    folder: Path,
    transport: str,
    *options: str,
    token: str | None = None,
    seconds: float = 120,
    small: bool = True,
) -> SuiteRun:
    """The same as `run_suite`, in a process that is forked from one where everything is imported already.

    That saves the greater part of a short run.

    Args:
        folder: where it runs.
        transport: what it judges.
        options: of the command line.
        token: the file with that of the Ray that the run is to join.
        seconds: how long it may take.
        small: failing examples are made as small as in any run, which may take longer than to find them.

    Raises:
        TimeoutError: the run did not end within `seconds`, and was killed.
    """
    arguments = command(transport, f"--rdt-report={folder}/report", *options)[3:]
    budget = {} if small else {"shrink_seconds": 0.5}
    run = run_pytest_forked(folder, arguments, token=token, seconds=seconds, budget=budget)
    return replace(run, report=_report(folder))


def run_pytest_forked(
    folder: Path,
    arguments: Sequence[str],
    *,
    token: str | None = None,
    seconds: float = 120,
    budget: Mapping[str, Any] | None = None,
) -> SuiteRun:
    """Run pytest with these arguments, and nothing added, as `run_suite_forked` does; no report is read.

    Args:
        budget: what a check may spend instead of what its profile says, by the fields of `Budget`.
    """
    forking = multiprocessing.get_context("forkserver")
    everything = ["torch", "ray.experimental", "rdt_conformance.session", "rdt_conformance.report.folder"]
    forking.set_forkserver_preload(everything)
    run = forking.Process(target=_run_pytest, args=(folder, list(arguments), token, budget or {}))
    run.start()
    run.join(seconds)
    if run.exitcode is None:
        run.kill()
        run.join()
        raise TimeoutError(f"the run did not end within {seconds:g} s:\n{(folder / 'printed').read_text()}")
    return SuiteRun(run.exitcode, (folder / "printed").read_text(), {})


def _run_pytest(folder: Path, arguments: list[str], token: str | None, budget: Mapping[str, Any]) -> None:
    for name, usual in PROFILES.items():
        PROFILES[name] = replace(usual, **budget)
    os.environ.pop("PYTEST_XDIST_WORKER", None)  # what runs in a worker of xdist is not that worker's
    os.chdir(folder)
    printed = os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, sys.stdout.fileno())
    os.dup2(printed, sys.stderr.fileno())
    with token_shown(token) if token is not None else contextlib.nullcontext():
        status = int(pytest.main(arguments))
    sys.stdout.flush()
    os._exit(status)


def _report(folder: Path) -> dict[str, Any]:
    path = folder / "report" / "report.json"
    return json.loads(path.read_text()) if path.exists() else {}


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
    return SuiteRun(run.returncode, run.stdout, _report(folder))
