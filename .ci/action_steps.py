"""Does what GitHub does with action.yml, as far as that can be done here: ``action_steps.py [INPUT=VALUE]...``.

Every ``run`` step is executed as it stands there. A ``uses`` step must name what it uses with a version. What this does
not understand is an error, so that the file cannot say something that nobody has tried.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).parent.parent
STEP_KEYS = {"name", "id", "shell", "env", "run", "uses", "with"}


class Context:
    """What an expression in ``${{ }}`` can name."""

    def __init__(self, declared: dict[str, Any], given: dict[str, str]) -> None:
        if unknown := given.keys() - declared.keys():
            raise SystemExit(f"action.yml has no input {', '.join(sorted(unknown))}")
        self.values: dict[str, str] = {}
        for name, told in declared.items():
            if told.get("required") and name not in given:
                raise SystemExit(f"the input {name} is required")
            self.values[f"inputs.{name}"] = given.get(name, self.filled(told.get("default", "")))

    def filled(self, text: str) -> str:
        """`text` with the value of each expression in its place."""
        return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda found: self.values[found[1]], text)


def main(arguments: list[str]) -> int:
    """Run the steps; returns the status of the first that fails, as GitHub runs no further ones then."""
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    context = Context(action["inputs"], dict(argument.split("=", 1) for argument in arguments))
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        if unknown := step.keys() - STEP_KEYS:
            raise SystemExit(f"{step['name']}: {', '.join(unknown)} is not understood")
        print(f"--- {step['name']}", flush=True)
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step["uses"]), step["uses"]
            print({name: context.filled(str(value)) for name, value in step["with"].items()})
        elif status := run(step, context):
            return status
    for name, told in action["outputs"].items():
        print(f"{name}={context.filled(told['value'])}")
    return 0


def run(step: dict[str, Any], context: Context) -> int:
    """Run one step as GitHub does; returns its exit status."""
    assert step["shell"] == "bash"
    assert "${{" not in step["run"], "an expression in a script is an injection"
    env = {name: context.filled(value) for name, value in step.get("env", {}).items()}
    with tempfile.NamedTemporaryFile("r", suffix=".output") as output:
        github = {"GITHUB_OUTPUT": output.name, "GITHUB_ACTION_PATH": str(ACTION)}
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(script, env=os.environ | env | github, check=False)
        for line in output.read().splitlines():
            name, value = line.split("=", 1)
            context.values[f"steps.{step['id']}.outputs.{name}"] = value
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
