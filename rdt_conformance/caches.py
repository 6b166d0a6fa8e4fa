"""Keeps Hypothesis from writing into the author's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis.configuration import set_hypothesis_home_dir


@contextmanager
def without_caches() -> Iterator[None]:
    """Leave Hypothesis no place for the caches that it would write into the author's folder.

    It does without them. A temporary folder would stay behind when the run is killed.
    """
    set_hypothesis_home_dir(os.path.join(os.devnull, "hypothesis"))
    try:
        yield
    finally:
        set_hypothesis_home_dir(None)
