"""pytest's door into the suite.

Loaded in every pytest run of every project that has it installed: without a transport it does nothing and imports
nothing heavy.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator

import pytest

# leaving is imported now, though it is used at the end, since it remembers how this process was started.
from rdt_conformance import leaving, options  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options that nobody else uses."""
    options.register(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, object, object]:
    """Register ``--transport`` too, now that the project's own conftest files had the first choice."""
    try:
        return (yield)
    finally:
        options.register_short_name(parser)


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Answer ``--rdt-clauses`` and ``--rdt-list``, which run nothing."""
    if config.getoption("rdt_clauses"):
        from rdt_conformance.clause_table import print_clauses
        from rdt_conformance.coverage import checks_by_clause
        from rdt_conformance.ray_quiet import no_auto_connect

        no_auto_connect()
        print_clauses(checks_by_clause(), sys.stdout)
        return 0
    if config.getoption("rdt_list"):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            from rdt_conformance.known_transports import print_known

            print_known(sys.stdout)
        return 0
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Start the heavy half if, and only if, a transport is named.

    Raises:
        pytest.UsageError: the options are wrong, or the transport cannot be run at all.
    """
    settings = options.read(config)
    if settings is None or config.getoption("help"):
        return
    with warnings.catch_warnings():
        # The project's filterwarnings may make errors of warnings; those of Ray and torch are not its business.
        warnings.simplefilter("default")
        from rdt_conformance.session import Session
        from rdt_conformance.target import TargetProblem

        try:
            Session(config, settings).register()
        except TargetProblem as problem:
            raise pytest.UsageError(str(problem)) from None
