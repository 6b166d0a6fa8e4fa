"""Writes one file of a report, whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class ReportProblem(Exception):
    """A report cannot be written or must not be trusted. The message is one line for the user."""


def demand_writable(folder: Path) -> None:
    """Make sure that files can be written into a folder, or that it can be made.

    Raises:
        ReportProblem: they cannot.
    """
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ReportProblem(f"nothing can be written to {there}")


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
