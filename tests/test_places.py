"""Where actors are placed. GPUs are numbers to Ray, so that much can be seen without one."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from rdt_conformance.engines.base import Spread
from rdt_conformance.engines.places import Place, Places

A, B = "a" * 56, "b" * 56


def two_gpus_on(*nodes: str) -> Places:
    return Places([[Place(node, group=object(), bundle=bundle) for bundle in range(2)] for node in nodes])


def where(places: Places, spread: Spread) -> list[tuple[str, int]]:
    found = [places.of(number, spread) for number in range(1, 5)]
    return [(place.node_id[0], place.bundle) for place in found]


def test_without_gpus_actors_go_round_the_nodes() -> None:
    places = Places.on_nodes([A, B])
    assert places.gpus == 0
    assert where(places, Spread.NODES) == [("b", 0), ("a", 0), ("b", 0), ("a", 0)]
    assert where(places, Spread.GPUS) == where(places, Spread.NOTHING) == [("a", 0)] * 4


def test_neighbours_have_different_gpus() -> None:
    places = two_gpus_on(A)
    assert places.gpus == 2
    assert where(places, Spread.NODES) == where(places, Spread.GPUS) == [("a", 0), ("a", 1), ("a", 0), ("a", 1)]
    assert where(places, Spread.NOTHING) == [("a", 0)] * 4


def test_neighbours_on_different_nodes_have_different_gpus_too() -> None:
    """Nodes of a private Ray are on one machine, and see the same GPUs."""
    assert where(two_gpus_on(A, B), Spread.NODES) == [("b", 0), ("a", 1), ("b", 0), ("a", 1)]


@pytest.mark.parametrize("spread", Spread)
def test_one_gpu_is_shared_by_all(spread: Spread) -> None:
    places = Places([[Place(A, group=object())]])
    assert places.gpus == 1
    assert where(places, spread) == [("a", 0)] * 4


def test_rays_gpus_are_pinned_shared_and_given_back() -> None:
    script = """
        import ray
        from rdt_conformance.engines.base import Spread
        from rdt_conformance.engines.ray_session import RayProblem, RaySession

        ray.init(num_cpus=1, num_gpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

        @ray.remote(num_cpus=0)
        class Actor:
            def gpus(self):
                return ray.get_gpu_ids()

        with RaySession() as session:
            places = session.places(("cuda",))
            assert session.places(("cuda", "cpu")) is places
            actors = [Actor.options(**places.of(n, Spread.NODES).options()).remote() for n in (1, 2, 3)]
            one, two, three = ray.get([actor.gpus.remote() for actor in actors], timeout=60)
            print(places.gpus, len(one), one == three, one != two)
            try:
                other = RaySession()
                other.start()
                other.places(("cuda",))
            except RayProblem as problem:
                print(problem)
        group = ray.util.placement_group([{"GPU": 2}])
        print(group.wait(30))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    first, problem, last = done.stdout.splitlines()
    assert first == "2 1 True True"
    assert problem.startswith("needs cuda: node ") and problem.endswith(" of this Ray has no free GPU")
    assert last == "True"
