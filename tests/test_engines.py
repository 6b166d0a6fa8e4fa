"""The engines with real processes run the same suites, also on a class that only the author's own file has."""

from __future__ import annotations

from pathlib import Path

import psutil
from suite_run import run_suite

FILE = """
from reference_transports.inline import InlineTransport


class MyTransport(InlineTransport):
    def tensor_transport_backend(self):
        return "MINE"
"""
PROFILE = """
from rdt_conformance import TransportProfile

PROFILE = TransportProfile(MyTransport, needs_process=True)
"""
CHECKS = "test_a_produced_object_is_consumed or test_the_same_reference_twice or test_earlier_results"


def test_suites_run_on_processes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    before = set(psutil.pids())
    options = ("--rdt-engine=cluster,ray", "--rdt-profile=quick", "--rdt-seed=1", "-k", CHECKS)
    run = run_suite(tmp_path, "mine.py:MyTransport", *options, seconds=240)
    assert run.status == 8, run.printed  # some of the checks are no verdict
    results = {clause["id"]: clause["results"] for clause in run.report["clauses"]}
    assert {result["engine"]: result["status"] for result in results["L1"]} == {"cluster": "pass", "ray": "pass"}
    assert not run.broken(), run.printed
    assert [name for pid in set(psutil.pids()) - before if _is_rays(name := _name(pid))] == []


def test_a_class_that_needs_a_process_gets_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE + PROFILE)
    run = run_suite(tmp_path, "mine:PROFILE", "--rdt-engine=local", "--collect-only", seconds=120)
    assert run.status == 4 and "needs a process of its own" in run.printed
    run = run_suite(tmp_path, "mine:PROFILE", "--collect-only", "-q", seconds=120)
    assert "[cluster]" in run.printed and "[local]" not in run.printed


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""


def _is_rays(name: str) -> bool:
    return name in ("raylet", "gcs_server") or name.startswith("ray::")
