"""Writes one file of a report, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

MADE = ("report.json", "report.html", "summary.md", "badge.svg", "badge.json")
"""The files that a run leaves."""


class ReportProblem(Exception):
    """A report cannot be written or must not be trusted. The message is one line for the user."""


def demand_writable(folder: Path) -> None:
    """Make sure that files can be written into a folder, or that it can be made.

    Raises:
        ReportProblem: they cannot.
    """
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()  # not all folders are what their permissions say, such as /proc
    except OSError:
        raise ReportProblem(f"nothing can be written to {there}") from None


def forget_earlier(folder: Path) -> None:
    """Remove what an earlier run has left in a folder: if this one ends early, that must not pass for its report."""
    for name in MADE:
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def save(path: Path, text: str) -> None:
    """Write beside the target and rename, so that a reader sees the old file or the new one, never a part.

    Raises:
        ReportProblem: the folder cannot be made or written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ReportProblem(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # The directory may not even exist.
            temporary.unlink(missing_ok=True)
