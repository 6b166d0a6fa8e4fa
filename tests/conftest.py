"""What all tests share. They leave threads behind that are stuck in transports, on purpose."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from rdt_conformance.leaving import leave_in_time

_LONGEST = "test_the_steps_of_the_tutorial"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let none of them turn a green run into a crash at the very end."""
    leave_in_time(int(exitstatus))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest: at the end the other workers would wait for it."""
    items.sort(key=lambda item: item.name != _LONGEST)


@pytest.fixture
def others() -> set[psutil.Process]:
    """What runs already: earlier tests may have left a helper, such as that of multiprocessing."""
    return set(psutil.Process().children(recursive=True))


@pytest.fixture
def not_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs inside a worker of xdist are not that worker's."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture
def small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contract of a few clauses, which stands for ours."""
    import made_small_world  # imports the whole judgement, which few tests need

    made_small_world.put(monkeypatch)


@pytest.fixture
def suites(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the shipped suites, outside the user's."""
    import made_suites  # imports all that a run needs, which few tests do

    return made_suites.stand_in(tmp_path_factory.mktemp("suites"), monkeypatch)


@pytest.fixture
def run(pytester: pytest.Pytester, suites: Path) -> object:
    """Runs pytest with the plugin on these; a `made_suites.Run`."""
    import made_suites

    return made_suites.runner(pytester, suites)
