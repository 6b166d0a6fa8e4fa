"""What tools for JUnit files can show: properties of each test and of the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from rdt_conformance.deviations import Deviations
from rdt_conformance.results import CheckResult


def properties(result: CheckResult, deviations: Deviations | None) -> Iterator[tuple[str, str]]:
    """The little of a check's result that can be shown with its test."""
    broken, listed = [], []
    for failure in result.failures:
        known = deviations and deviations.accepted(failure.clause, result.engine)
        (listed if known else broken).append(failure.clause)
    yield "rdt_outcome", "warned" if result.outcome == "passed" and broken else result.outcome
    yield "rdt_clauses", " ".join(result.clauses)
    if broken:
        yield "rdt_broken", " ".join(broken)
    if listed:
        yield "rdt_deviations", " ".join(listed)


def tell(config: pytest.Config, document: Mapping[str, Any]) -> None:
    """Give the JUnit file, if one is written, the properties of a whole run.

    Args:
        config: pytest's.
        document: the report of the run.
    """
    xml = config.stash.get(xml_key, None)
    if xml is not None:
        for name, value in _of_run(document):
            xml.add_global_property(name, value)


def _of_run(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    verdict, environment = document["verdict"], document["environment"]
    yield "rdt_transport", document["target"]["spec"]
    yield "rdt_verdict", verdict["headline"]
    yield "rdt_exit_status", str(verdict["exit_status"])
    yield "rdt_level", str(verdict["level"]["number"]) if verdict["level"] else "none"
    for entry in verdict["deviations"]:
        yield "rdt_deviation", f"{entry['clause']} on {entry['engine']} until {entry['expires']}: {entry['reason']}"
    for line in verdict["unmet"]:
        yield "rdt_unmet", line
    yield "rdt_engines", " ".join(verdict["engines"])
    yield "rdt_profile", environment["profile"]
    yield "rdt_seed", str(environment["seed"])
