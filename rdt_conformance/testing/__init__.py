"""RDT without a cluster or a GPU, for unit tests of code that uses it.

A `LocalRay` stands in for the module ``ray`` where a test says so: actors of the classes under test are threads of this
process, and what Ray Direct Transport does between them is done by the reference RDT of this project, call by call:
objects stay with their actor, move when they are needed, and are freed when the last reference is gone.

    from rdt_conformance.testing import local_ray

    def test_weights_arrive(local_ray):
        with local_ray.instead_of_ray_in(my_module):
            my_module.train_one_step()
        assert local_ray.transfers == 1

What it stands in for: ``remote`` on classes, ``method``, ``get``, ``put``, ``kill``, ``is_initialized``, and
``exceptions``; of ``ray.experimental`` ``register_tensor_transport``, ``set_target_for_ref``,
``set_target_device_for_ref`` and ``wait_tensor_freed``. Anything else raises `NotStoodIn`, and nothing is ever sent to
a real Ray. Where a task on Ray would wait in vain for tensors, `WouldHang` is raised at once. ``docs/testing.md`` has
an example.

What it does not do: run functions as tasks, async or generator methods, several return values, named actors, restarts,
resources, processes (actors see each other's module globals) and the object store's copies (an ordinary result is one
value, however often it is got). Errors come as themselves, not wrapped in a RayTaskError that is also of their class.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rdt_conformance.testing.handles import NotStoodIn, WouldHang
from rdt_conformance.testing.stand_in import LocalRay

__all__ = ["LocalRay", "NotStoodIn", "WouldHang", "local_ray"]


@pytest.fixture
def local_ray() -> Iterator[LocalRay]:
    """A `LocalRay` for one test. Import it into the test module or its conftest.py."""
    with LocalRay() as stand_in:
        yield stand_in
