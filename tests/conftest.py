"""Tests leave threads behind that are stuck in transports, on purpose."""

from __future__ import annotations

import pytest

from rdt_conformance.leaving import leave_in_time


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let none of them turn a green run into a crash at the very end."""
    leave_in_time(int(exitstatus))
