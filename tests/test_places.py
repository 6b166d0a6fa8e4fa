"""Where actors are placed. GPUs are numbers to Ray, so that much can be seen without one."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from rdt_conformance.engines.base import Spread
from rdt_conformance.engines.places import Place, Places

A, B = "a" * 56, "b" * 56


def gpus_on(*nodes: str, count: int) -> Places:
    return Places([[Place(node, group=object(), bundle=bundle) for bundle in range(count)] for node in nodes])


def where(places: Places, spread: Spread) -> list[tuple[str, int]]:
    found = [places.of(number, spread) for number in range(1, 5)]
    return [(place.node_id[0], place.bundle) for place in found]


def test_without_gpus_actors_go_round_the_nodes() -> None:
    places = Places.on_nodes([A, B])
    assert places.gpus == 0
    assert where(places, Spread.NODES) == [("b", 0), ("a", 0), ("b", 0), ("a", 0)]
    assert where(places, Spread.GPUS) == where(places, Spread.NOTHING) == [("a", 0)] * 4


def test_the_first_actor_has_a_gpu_to_itself() -> None:
    places = gpus_on(A, count=2)
    assert places.gpus == 2
    assert where(places, Spread.NODES) == where(places, Spread.GPUS) == [("a", 0), ("a", 1), ("a", 1), ("a", 1)]
    assert where(places, Spread.NOTHING) == [("a", 0)] * 4
    assert where(gpus_on(A, count=3), Spread.GPUS) == [("a", 0), ("a", 1), ("a", 2), ("a", 1)]
    assert where(gpus_on(A, count=4), Spread.GPUS) == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]


def test_so_it_does_where_others_are_on_other_nodes() -> None:
    """Nodes of a private Ray are on one machine, and see the same GPUs."""
    assert where(gpus_on(A, B, count=2), Spread.NODES) == [("b", 0), ("a", 1), ("b", 1), ("a", 1)]


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
            print(places.gpus, len(one), two == three, one != two)
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
