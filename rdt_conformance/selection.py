"""Which of the shipped checks a run is about, in which order, and whether that is all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rdt_conformance import contract
from rdt_conformance.items import check_of, engine_of, must_check_of
from rdt_conformance.options import SOAK, Settings
from rdt_conformance.target import Target

NARROWING = ("keyword", "markexpr", "deselect", "stepwise", "ignore", "ignore_glob")
"""pytest's options that leave checks out; ``--lf`` is looked at apart."""
_HARD_ON_PROCESSES = frozenset(("L12", "X1", "S8", "A11", "R1", "R2", "R5", "R7", "R8", "R9", "R10"))
"""Clauses whose checks end processes, or need such as have never used the transport."""
_AREAS = list(contract.Area)
_TOLD_ANYWAY = "pytest.PytestUnhandledThreadExceptionWarning"
"""What pytest says of a thread that ends in an error. A failure tells so itself; a server has hundreds of them."""
DONE_KNOWINGLY = "object .* goes back to"
"""How a warning begins of what a check may do, and a user is better warned of, as Ray does and the reference too."""


class Selection:
    """What one run selects.

    Args:
        config: pytest's.
        settings: what the user asked for.
        target: the transport.
        engines: of the run, in the order in which they work.

    Raises:
        pytest.UsageError: a clause that was asked for does not exist, or no check can say anything of it in this run.
    """

    def __init__(self, config: pytest.Config, settings: Settings, target: Target, engines: Sequence[str]) -> None:
        self._config = config
        self._settings = settings
        self._target = target
        self._engines = engines
        for name in settings.clauses:
            if problem := self._why_nothing(name):
                raise pytest.UsageError(f"--rdt-clause: {problem}")
        self._wanted = {contract.as_meant(name).id for name in settings.clauses}

    def take(self, items: list[pytest.Item]) -> None:
        """Leave out the checks that have nothing to say about this transport on this engine, or were not asked for.

        Raises:
            pytest.UsageError: there is no check such as the one to replay.
        """
        replay = self._settings.replay
        if replay is not None and not any(check.name == replay.check for item in items if (check := check_of(item))):
            raise pytest.UsageError(f"--rdt-replay: there is no check {replay.check} in this version")
        taken = {item for item in items if check_of(item) and self._applies(item) and self._is_asked_for(item)}
        idle = [item for item in items if check_of(item) and item not in taken]
        if idle:
            items[:] = [item for item in items if item not in idle]
            self._config.hook.pytest_deselected(items=idle)
        for item in taken:
            # The project may turn warnings into errors; those of a transport are not for pytest to judge.
            item.add_marker(
                pytest.mark.filterwarnings("default", f"ignore:{DONE_KNOWINGLY}", f"ignore::{_TOLD_ANYWAY}")
            )

    def begin_with_the_basics(self, items: list[pytest.Item]) -> None:
        """In the order of the areas, so that what fails first, which ``-x`` stops at, is what the rest builds on."""
        _sort_checks(items, _area)

    def put_in_order(self, items: list[pytest.Item]) -> None:
        """One engine after the other, whatever other plugins make of the order: each is costly to start.

        So are processes: where actors have some, the checks that leave none for the next one come last.
        """
        _sort_checks(items, lambda item: (self._engines.index(engine_of(item)), _comes_last(item)))

    def narrowed(self) -> bool:
        """Whether an option leaves out checks that have something to say."""
        option, settings = self._config.option, self._settings
        asked = settings.replay is not None or bool(settings.clauses)
        return asked or self._reruns_failed() or any(getattr(option, name, None) for name in NARROWING)

    def _reruns_failed(self) -> bool:
        """Whether ``--lf`` leaves any out, which it does not if nothing failed before."""
        cache = self._config.cache if getattr(self._config.option, "lf", False) else None
        return cache is not None and bool(cache.get("cache/lastfailed", {}))

    def _is_asked_for(self, item: pytest.Item) -> bool:
        return not self._wanted or not self._wanted.isdisjoint(must_check_of(item).clauses)

    def _applies(self, item: pytest.Item) -> bool:
        # The first clause says whom a check is for; the others are decided along the way.
        check, replay = must_check_of(item), self._settings.replay
        if replay is not None and check.name != replay.check:
            return False
        profile = self._settings.profile
        if profile not in check.profiles and (check.profiles or profile == SOAK):
            return False
        if check.engine and engine_of(item) != check.engine:
            return False
        if not check.clauses:
            return True
        first = contract.clause(check.clauses[0])
        if (check.ray_limit and engine_of(item) == "ray") or (check.interleaves and engine_of(item) != "local"):
            return False
        return self._target.applies(first) and engine_of(item) in first.engines

    def _why_nothing(self, name: str) -> str:
        """Why no check can say anything of a clause in this run; empty if one can."""
        try:
            clause = contract.as_meant(name)
        except contract.UnknownClauseError as problem:
            return str(problem)
        if not self._target.applies(clause):
            return f"{clause.id} is only for {clause.applies.value}, which this is not"
        if clause.untested:
            return f"{clause.id} is not tested: {clause.untested}"
        if not clause.engines & set(self._engines):
            return f"{clause.id} needs the {' or '.join(sorted(clause.engines))} engine; see --rdt-engine"
        return ""


def _sort_checks(items: list[pytest.Item], key: Callable[[pytest.Item], Any]) -> None:
    """Sort the checks; what is no check keeps its place."""
    ordered = iter(sorted(filter(check_of, items), key=key))
    items[:] = [next(ordered) if check_of(item) else item for item in items]


def _area(item: pytest.Item) -> int:
    clauses = must_check_of(item).clauses
    return _AREAS.index(contract.clause(clauses[0]).area) if clauses else len(_AREAS)


def _comes_last(item: pytest.Item) -> bool:
    return engine_of(item) != "local" and not _HARD_ON_PROCESSES.isdisjoint(must_check_of(item).clauses[:1])
