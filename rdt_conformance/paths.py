"""Where the suites and the report's files lie: beside the package in a checkout, inside it as data in a wheel.

They are found by path, never imported by name, so that nothing called ``suites`` or ``reports`` is installed.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """The folder ``suites`` or ``reports``.

    Raises:
        FileNotFoundError: neither a checkout nor a wheel has it; the installation is damaged.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"rdt-conformance is not completely installed: its folder {name!r} is missing")


def suite_files() -> list[Path]:
    """Every suite's file, in an order that is the same everywhere."""
    return sorted(data_folder("suites").rglob("test_*.py"))
