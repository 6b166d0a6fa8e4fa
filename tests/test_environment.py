"""What a report tells of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdt_conformance import paths
from rdt_conformance.environment import environment, gpus


def test_the_environment_is_json_and_tells_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "hunter2")
    monkeypatch.setenv("MY_RAY_THING", "unrelated")
    found = environment()
    assert json.loads(json.dumps(found)) == found
    assert found["variables"]["UCX_TLS"] == "tcp"
    assert found["variables"]["RAY_AUTH_TOKEN"] == "(set, not shown)"
    assert "MY_RAY_THING" not in found["variables"]
    assert found["packages"]["pytest"] == pytest.__version__
    assert found["cores"] >= 1


def test_gpus_are_named_as_the_driver_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.__wrapped__() == ()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.159.04'\necho 'NVIDIA H200, 580.159.04'\n")
    tool.chmod(0o755)
    assert gpus.__wrapped__() == ("NVIDIA H200, driver 580.159.04",) * 2
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert gpus.__wrapped__() == ()


def test_the_environment_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rdt_conformance.environment import environment; environment();"
        "assert not {'ray', 'torch', 'numpy', 'pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=paths.data_folder("reports").parent)
