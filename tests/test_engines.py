"""The engines with real processes run the same suites, also on a class that only the author's own file has."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch
from ray._private.worker import global_worker
from ray.experimental import register_tensor_transport
from ray.experimental.rdt import util
from suite_run import run_suite

from rdt_conformance.engines.cluster.registry import ProcessRegistry
from rdt_conformance.engines.ray.registry import RayRegistry
from rdt_conformance.engines.ray.worker import RayWorker
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.reference.worker import AS_IN_RAY
from rdt_conformance.history import History
from reference_transports.inline import InlineTransport

FILE = """
import ray
import torch
from ray.experimental import register_tensor_transport
from ray.experimental.rdt.util import get_tensor_transport_manager
from reference_transports.inline import InlineTransport


def works(actor):
    return isinstance(get_tensor_transport_manager("MINE"), MyTransport)


class MyTransport(InlineTransport):
    def __init__(self):
        self.node_id = ray.get_runtime_context().get_node_id()

    def tensor_transport_backend(self):
        return "MINE"

    def actor_has_tensor_transport(self, actor):
        return ray.get(actor.__ray_call__.options(concurrency_group="_ray_system").remote(works))


register_tensor_transport("mine", ["cpu"], MyTransport, torch.Tensor)
"""
PROFILE = """
from rdt_conformance import TransportProfile
from reference_transports.inline import InlineTransport

PROFILE = TransportProfile(InlineTransport, needs_process=True)
"""
CHECKS = (
    "test_a_produced_object_is_consumed or test_the_same_reference_twice or test_whether_an_actor_has "
    "or test_the_class_is_built"
)

MARK = "RDT_TEST_THAT_STARTED_IT"


def test_suites_run_on_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))  # inherited by every process of the run
    (tmp_path / "mine.py").write_text(FILE)
    options = ("--rdt-engine=cluster,ray", "--rdt-profile=quick", "--rdt-seed=1", "-k", CHECKS)
    run = run_suite(tmp_path, "mine.py:MyTransport", *options, seconds=240)
    assert run.status == 8, run.printed  # some of the checks are no verdict
    results = {clause["id"]: clause["results"] for clause in run.report["clauses"]}
    assert {result["engine"]: result["status"] for result in results["L1"]} == {"cluster": "pass", "ray": "pass"}
    assert not run.broken() and {"L1", "S1", "S5", "S8"} <= run.passed(), run.printed
    assert [process for process in psutil.process_iter() if _mark_of(process) == str(tmp_path)] == []


def test_a_class_that_needs_a_process_gets_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROFILE)
    run = run_suite(tmp_path, "mine:PROFILE", "--rdt-engine=local", "--collect-only", seconds=120)
    assert run.status == 4 and "needs a process of its own" in run.printed
    run = run_suite(tmp_path, "mine:PROFILE", "--collect-only", "-q", seconds=120)
    assert "[cluster]" in run.printed and "[local]" not in run.printed


@pytest.mark.parametrize("registry_class", [ProcessRegistry, RayRegistry])
@pytest.mark.parametrize("registered", [False, True])
def test_ray_finds_the_instance_that_is_judged(registry_class: type[ProcessRegistry], registered: bool) -> None:
    """Also where the author's module has registered the class when it was imported."""
    registry = registry_class(Registration("FOUND", ("cpu",), InlineTransport, torch.Tensor))
    if registered:
        register_tensor_transport("found", ["cpu", "cuda"], InlineTransport, torch.Tensor)
    before = util.transport_manager_info.get("FOUND")
    try:
        (registry.register_with_ray if isinstance(registry, RayRegistry) else registry.show_to_ray)()
        assert registry.built("FOUND") is None
        assert registry.instance("FOUND") is util.get_tensor_transport_manager("FOUND")
        assert isinstance(registry.instance("FOUND"), InlineTransport)
        assert util.device_match_transport("cuda", "FOUND") is registered
        registry.hide_from_ray()
        assert util.transport_manager_info.get("FOUND") is before
    finally:
        util.transport_manager_info.pop("FOUND", None)


def test_rays_manager_is_there_before_two_threads_can_make_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_worker, "_rdt_manager", None)
    registry = RayRegistry(Registration("FOUND", ("cpu",), InlineTransport, torch.Tensor))
    host = ThreadHost((), History(), AS_IN_RAY)
    try:
        RayWorker("actor", host, registry, History(), AS_IN_RAY)
        assert global_worker._rdt_manager is not None
    finally:
        host.stop()


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:
        return None
