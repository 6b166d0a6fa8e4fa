"""Tests leave threads behind that are stuck in transports, on purpose."""

from __future__ import annotations

import psutil
import pytest

from rdt_conformance.leaving import leave_in_time


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let none of them turn a green run into a crash at the very end."""
    leave_in_time(int(exitstatus))


@pytest.fixture
def others() -> set[psutil.Process]:
    """What runs already: earlier tests may have left a helper, such as that of multiprocessing."""
    return set(psutil.Process().children(recursive=True))


@pytest.fixture
def not_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs inside a worker of xdist are not that worker's."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
