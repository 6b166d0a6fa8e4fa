"""What the C library does with memory that is freed. Of others than glibc nothing is known, and nothing asked."""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_AT_FIRST = 128 << 10
"""Bytes: what is larger has a mapping of its own, and more than that is not kept at the end of a heap."""
_AT_MOST = 32 << 20


def give_back_freed() -> None:
    """Return what has been freed to the system, and keep little of what will be.

    Otherwise glibc raises its bounds with the size of what is freed. Of pieces of four mebibytes it may then keep ten
    for each thread, at the ends of heaps, where not even `malloc_trim` returns them.
    """
    _set_bounds(_AT_FIRST)
    trim()


def trim() -> None:
    """Return what has been freed to the system, but for the ends of heaps."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed() -> None:
    """Keep for later what will be freed, as a process does that has freed large pieces for a while."""
    _set_bounds(_AT_MOST)


def _set_bounds(nbytes: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, nbytes)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * nbytes)
