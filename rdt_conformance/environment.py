"""Where a run took place: enough to tell two reports apart, without importing what it names."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rdt_conformance.private import without_places

PACKAGES = ("ray", "torch", "numpy", "nixl", "hypothesis", "pytest")
VARIABLES = re.compile(r"(UCX|NCCL|RAY)_")
PRIVATE = re.compile(r"PASS|TOKEN|SECRET|KEY|CRED|AUTH|CONFIG")
"""Variables that may carry a secret (``RAY_JOB_CONFIG_…`` holds the user's whole environment): reports are shared."""
_SECONDS = 20
"""What the driver may take to say which GPUs there are."""


def environment() -> dict[str, Any]:
    """The fingerprint of this machine and process, JSON-ready.

    Sizes are in bytes; what this system does not tell, and packages that are not installed, are None. The values of
    variables that may hold secrets are left out.
    """
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "gpus": list(gpus()),
        "memory": _memory(),
        "shared_memory": _size_of("/dev/shm"),
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "packages": {name: _version(name) for name in PACKAGES},
        "variables": {
            name: "(set, not shown)" if PRIVATE.search(name) else without_places(value)
            for name, value in sorted(os.environ.items())
            if VARIABLES.match(name)
        },
    }


def fingerprint(told: Mapping[str, Any]) -> list[Any]:
    """What has to be the same in two environments for times to be compared."""
    told = {"gpus": [], **told}  # reports from before there was such an entry
    return [told.get(name) for name in ("cpu", "cores", "gpus", "memory", "kernel", "python", "packages", "variables")]


@functools.cache
def versions() -> dict[str, str]:
    """Of the packages on which it depends what an example does, those that are installed.

    Asked for with every failing example, also while it is made small.
    """
    found = {name: _version(name) for name in ("rdt-conformance", "ray", "torch", "numpy", "hypothesis")}
    return {name: version for name, version in found.items() if version is not None}


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


@functools.cache
def gpus() -> tuple[str, ...]:
    """The NVIDIA GPUs of this machine with their driver, as ``nvidia-smi`` names them; none where that is not there."""
    question = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [line.partition(", ") for line in answer.splitlines() if line.strip()]
    return tuple(f"{name}, driver {driver}" for name, _, driver in rows)


def _usable_cores() -> int:
    """Those that this process may run on, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _size_of(directory: str) -> int | None:
    try:
        return shutil.disk_usage(directory).total
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
