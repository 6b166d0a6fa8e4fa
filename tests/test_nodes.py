"""Several nodes, an existing cluster, and a Ray that cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from suite_run import run_suite

from rdt_conformance.engines.ray_session import RaySession

pytestmark = pytest.mark.timeout(300)

ONE_NODE = """
import ray
from reference_transports.faulty.nodes import KnowsNodes, here


class OneNode(KnowsNodes):
    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
        if tensor_transport_metadata.node_id != here():
            raise RuntimeError("this works within a node only")
        return super().recv_multiple_tensors(
            obj_id, tensor_transport_metadata, communicator_metadata, target_buffers
        )
"""
CHECKS = "test_a_transfer_between_nodes or test_a_produced_object_is_consumed or test_the_same_reference_twice"


def test_a_transport_that_stays_on_its_node_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ONE_NODE)
    options = ("--rdt-engine=cluster,ray", "--rdt-nodes=2", "--rdt-profile=quick", "--rdt-seed=1", "-k", CHECKS)
    run = run_suite(tmp_path, "mine.py:OneNode", *options, seconds=240)
    assert not run.broken(), run.printed
    results = {clause["id"]: clause["results"] for clause in run.report["clauses"]}
    for clause in ("L1", "L13", "R8"):
        assert {result["engine"]: result["status"] for result in results[clause]} == {
            "cluster": "pass",
            "ray": "pass",
        }, run.printed
    assert "between nodes: refused: RuntimeError: this works within a node only" in run.printed
    assert "actors are placed: on one node, over its GPUs if they have any" in run.printed


@pytest.fixture
def two_nodes() -> Iterator[RaySession]:
    """A cluster that the runs of a test find, as their environment names its token."""
    with RaySession(nodes=2, seconds=180) as cluster:
        yield cluster


def test_an_existing_cluster_is_used_and_left(two_nodes: RaySession, tmp_path: Path) -> None:
    import ray
    from ray._private import state

    options = (f"--rdt-address={two_nodes.address}", "--rdt-profile=quick", "--rdt-seed=1", "-k", CHECKS)
    run = run_suite(tmp_path, "inline", "--rdt-engine=cluster,ray", "--rdt-nodes=2", *options, seconds=240)
    assert not run.broken(), run.printed
    assert "between nodes: exact" in run.printed
    assert {actor["State"] for actor in state.actors().values()} == {"DEAD"}
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    run = run_suite(tmp_path, "inline", "--rdt-engine=cluster", "--rdt-nodes=3", *options, seconds=120)
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --rdt-address: the Ray at {two_nodes.address} has 2 of 3 nodes\n" in run.printed


@pytest.mark.parametrize("given", ["command line", "ini file"])
def test_an_address_where_no_ray_is(given: str, tmp_path: Path) -> None:
    option = "rdt-address=127.0.0.1:1"
    if given == "ini file":
        (tmp_path / "pytest.ini").write_text("[pytest]\nrdt_address = 127.0.0.1:1\nrdt_engine = local,ray\n")
    options = ("--rdt-engine=local,ray", f"--{option}") if given == "command line" else ()
    run = run_suite(tmp_path, "inline", "--rdt-profile=quick", *options)
    assert run.status == pytest.ExitCode.USAGE_ERROR, run.printed
    assert "Traceback" not in run.printed
    (line,) = [line for line in run.printed.splitlines() if "no Ray" in line]
    assert line.startswith("ERROR: --rdt-address: no Ray can be reached at 127.0.0.1:1: ")
    assert run.report == {}


def test_a_ray_that_cannot_start_is_told_once(tmp_path: Path, others: set[psutil.Process]) -> None:
    (tmp_path / "conftest.py").write_text(
        "from rdt_conformance.engines import ray_session\nray_session._temporary_base = lambda: '/proc'\n"
    )
    run = run_suite(tmp_path, "inline", "--rdt-engine=local,ray", "--rdt-profile=quick", "-k", CHECKS)
    assert run.status == 8, run.printed
    assert "Traceback" not in run.printed
    assert run.printed.count("Ray did not start: ") == 1
    assert set(psutil.Process().children()) <= others
