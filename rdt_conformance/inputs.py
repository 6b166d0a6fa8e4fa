"""The files that the user names for a run. What is wrong with one is found out before the run, not after it."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from rdt_conformance.deviations import Deviations, DeviationsProblem, read
from rdt_conformance.options import Settings
from rdt_conformance.report.saving import ReportProblem, demand_writable


def report_folder(config: pytest.Config, settings: Settings) -> Path | None:
    """Where the report goes; None if none is wanted.

    Raises:
        pytest.UsageError: nothing can be written there.
    """
    if settings.report is None:
        return None
    folder = config.invocation_params.dir / settings.report
    try:
        demand_writable(folder)
    except ReportProblem as problem:
        raise pytest.UsageError(f"--rdt-report: {problem}") from None
    return folder


def deviations(config: pytest.Config, settings: Settings) -> Deviations | None:
    """The known deviations, as of today in UTC; None if no file is named.

    Raises:
        pytest.UsageError: the file cannot be used.
    """
    path = settings.deviations
    if path is None:
        return None
    name = os.path.relpath(path, config.invocation_params.dir)
    try:
        return read(path, name, datetime.now(timezone.utc).date())
    except DeviationsProblem as problem:
        raise pytest.UsageError(f"--rdt-deviations: {problem}") from None
