"""What authors copy from: the action, the snippets of the docs and the example know what this version knows."""

from __future__ import annotations

import importlib
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rdt_conformance import deviations
from rdt_conformance.options import OPTIONS

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "third_party_transport"
yaml: Any = importlib.import_module("yaml")  # comes with Ray, and has no types
SNIPPETS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
WORKFLOW = (EXAMPLE / ".github" / "workflows" / "conformance.yml").read_text()


@pytest.mark.parametrize("text", [(ROOT / "action.yml").read_text(), WORKFLOW, *SNIPPETS])
def test_every_option_that_is_named_exists(text: str) -> None:
    yaml.safe_load(text)
    named = set(re.findall(r"--(?:no-)?rdt-[a-z-]+", text))
    assert named <= {option.name for option in OPTIONS}


def test_every_input_that_is_given_to_the_action_exists() -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    steps = [*yaml.safe_load(WORKFLOW)["jobs"]["conformance"]["steps"], *yaml.safe_load(SNIPPETS[0])]
    given = [step["with"] for step in steps if "rdt-conformance@" in step.get("uses", "")]
    assert len(given) == 2
    assert {name for names in given for name in names} <= inputs.keys()


def test_the_deviations_of_the_example_are_as_they_must_be() -> None:
    assert len(deviations.read(EXAMPLE / "deviations.toml", "deviations.toml", date.today()).entries) == 3


def test_the_settings_of_the_example_exist() -> None:
    settings = deviations.tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings.keys() <= {option.key for option in OPTIONS if option.ini}
