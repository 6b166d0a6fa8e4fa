"""How pytest collects a shipped suite, and the fixture that its checks ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from rdt_conformance import pickling
from rdt_conformance.bench.run import arena
from rdt_conformance.checks.bench import Bench
from rdt_conformance.engines.ray_session import RayProblem

BENCH_OF = pytest.StashKey[Callable[[str], Bench]]()
"""Gives the bench of an engine."""


@pytest.fixture
def rdt(request: pytest.FixtureRequest) -> Bench:
    """The transport under test, set up on one engine."""
    try:
        return request.config.stash[BENCH_OF](request.param)
    except RayProblem as problem:  # every check has the same to say then, and the verdict says it once
        pytest.skip(str(problem))


class SuiteModule(pytest.Module):
    """A suite, collected as it is meant whatever the project's own settings and fixtures are."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:  # noqa: D102
        self.obj.rdt, self.obj.arena = rdt, arena  # nearer than a fixture of that name in a conftest.py
        pickling.register_pickle_by_value(self.obj)  # other processes cannot import it
        return super().collect()

    def funcnamefilter(self, name: str) -> bool:  # noqa: D102
        return name.startswith("test_")

    def classnamefilter(self, name: str) -> bool:  # noqa: D102
        return False
