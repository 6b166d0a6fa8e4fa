"""Where the report goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rdt_conformance.options import Settings


def report_folder(config: pytest.Config, settings: Settings) -> Path | None:
    """The folder, or None for no report. That it can be written to is found out now, not when the work is done.

    Raises:
        pytest.UsageError: it cannot.
    """
    if settings.report is None:
        return None
    folder = config.invocation_params.dir / settings.report
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise pytest.UsageError(f"--rdt-report: nothing can be written to {there}")
    return folder
