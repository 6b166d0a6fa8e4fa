"""Lists and numbers in words, the same way wherever a verdict is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def count(number: int, noun: str) -> str:
    """``1 clause``, ``1,200 clauses``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def few(names: Sequence[str], limit: int = 6) -> str:
    """The first few of a list of names, and how many more there are."""
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def listed(names: Sequence[str]) -> str:
    """``local``, ``local and ray``, ``local, cluster and ray``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def in_bytes(size: int) -> str:
    """``64 MiB``."""
    shift, unit = next(
        (shift, unit) for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")) if not shift or size >> shift
    )
    return f"{size / (1 << shift):g} {unit}"


def in_time(seconds: float) -> str:
    """``1.23 ms``."""
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def worded(value: Any) -> str:
    """A fact of a check: ``yes``, ``3``, ``a, b``."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(worded(item) for item in value) or "none"
        case dict():
            return ", ".join(f"{name} {number:,}" for name, number in sorted(value.items())) or "none"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)
