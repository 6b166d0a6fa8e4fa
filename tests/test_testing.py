"""Code that uses RDT runs on the stand-in for Ray as it would on Ray, and what has no stand-in says so."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.exceptions
import torch
from ray.experimental import set_target_for_ref, wait_tensor_freed

from rdt_conformance.testing import LocalRay, NotStoodIn, WouldHang, local_ray
from reference_transports.socket_pull import SocketPullTransport

__all__ = ["local_ray"]

DOCS = Path(__file__).parent.parent / "docs" / "testing.md"


class Trainer:
    def __init__(self, size: int) -> None:
        self.weights = torch.arange(size, dtype=torch.float32)

    @ray.method(tensor_transport="nixl")
    def publish(self) -> torch.Tensor:
        return self.weights

    @ray.method(tensor_transport="gloo")
    def publish_to_all(self) -> dict[str, Any]:
        return {"weights": self.weights, "step": 3}

    def change(self, timeout: float | None = None) -> None:
        RAY.experimental.wait_tensor_freed(self.weights, timeout)
        self.weights += 1

    def put(self) -> list[Any]:
        return [RAY.put(row, _tensor_transport="nixl") for row in self.weights.reshape(2, -1)]

    def fail(self) -> None:
        raise KeyError("no such layer")

    async def later(self) -> None:
        pass


class Worker:
    def total(self, *values: Any) -> float:
        return sum(float(value["weights"].sum() if isinstance(value, dict) else value.sum()) for value in values)

    def get_all(self, refs: list[Any]) -> list[float]:
        return [float(tensor.sum()) for tensor in RAY.get(refs)]

    def ask(self, trainer: Any) -> float:
        return float(RAY.get(trainer.publish.remote()).sum())

    def echo(self, value: Any) -> Any:
        return value


RAY: Any = None


@pytest.fixture(autouse=True)
def stand_in(local_ray: LocalRay, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalRay]:
    monkeypatch.setitem(globals(), "RAY", local_ray)
    yield local_ray


def started(local_ray: LocalRay, size: int = 4) -> tuple[Any, Any]:
    receiving = local_ray.remote(num_gpus=1, enable_tensor_transport=True)(Worker)
    return local_ray.remote(Trainer).remote(size), receiving.remote()


def test_the_example_in_the_docs_runs(pytester: pytest.Pytester) -> None:
    blocks = [part.partition("```")[0] for part in DOCS.read_text().split("```python\n")[1:]]
    files = {block.split()[1].removesuffix(".py"): block for block in blocks}
    assert files.keys() == {"rollouts", "test_rollouts"}
    pytester.makepyfile(**files)
    pytester.syspathinsert()
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.makepyfile(rollouts=files["rollouts"].replace("timeout=10", "timeout=0.1").replace("del weights", "pass"))
    sys.modules.pop("rollouts", None)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*TimeoutError: the tensor was not freed within 0.1 s: a ref to it is still alive*")


@pytest.mark.parametrize("method", ["publish", "publish_to_all"])
def test_tensors_move_from_actor_to_actor(local_ray: LocalRay, method: str) -> None:
    trainer, worker = started(local_ray)
    ref = getattr(trainer, method).remote()
    assert local_ray.get([worker.total.remote(ref), worker.total.remote(ref, ref)]) == [6.0, 12.0]
    assert local_ray.calls("recv_multiple_tensors") == [("Worker2", "recv_multiple_tensors")] * 2
    assert local_ray.transfers == 2
    assert local_ray.held() == {"Trainer1": 1}
    del ref
    assert local_ray.held() == {}
    assert local_ray.calls()[-1] == ("Trainer1", "garbage_collect")
    assert {step.process for step in local_ray.history} <= {"driver", "Trainer1", "Worker2"}


def test_what_an_actor_puts_can_be_got_anywhere(local_ray: LocalRay) -> None:
    trainer, worker = started(local_ray)
    refs = local_ray.get(trainer.put.remote())
    assert local_ray.get(worker.get_all.remote(refs)) == [1.0, 5.0]
    assert [tensor.tolist() for tensor in local_ray.get(refs)] == [[0.0, 1.0], [2.0, 3.0]]
    assert local_ray.get(refs[1], _use_object_store=True).tolist() == [2.0, 3.0]


def test_the_driver_puts_and_actors_are_passed_on(local_ray: LocalRay) -> None:
    trainer, worker = started(local_ray)
    ref = local_ray.put(torch.ones(3), _tensor_transport="nixl")
    assert local_ray.get(worker.total.remote(ref, torch.ones(2))) == 5.0
    assert local_ray.get(worker.ask.remote(trainer)) == 6.0
    value = local_ray.put({"a": [1]})
    assert local_ray.get(worker.echo.remote(value)) == {"a": [1]} == local_ray.get(value)
    assert local_ray.get(worker.echo.remote(worker.echo.remote(7))) == 7


def test_target_buffers_are_filled(local_ray: LocalRay) -> None:
    trainer, _ = started(local_ray)
    ref, buffer = trainer.publish.remote(), torch.empty(4)
    local_ray.experimental.set_target_for_ref(ref, [buffer])
    assert local_ray.get(ref) is buffer and buffer.tolist() == [0.0, 1.0, 2.0, 3.0]
    too_small = [torch.empty(3)]
    local_ray.experimental.set_target_for_ref(ref, too_small)
    with pytest.raises(ValueError, match=r"target buffer 0 is torch\.float32\(3,\)"):
        local_ray.get(ref)
    local_ray.experimental.set_target_device_for_ref(ref, "cpu")
    assert local_ray.get(ref).sum() == 6
    with pytest.raises(ValueError, match="no reference to an RDT object"):
        local_ray.experimental.set_target_for_ref(local_ray.put(1), too_small)


def test_a_tensor_is_safe_to_change_when_nobody_refers_to_it(local_ray: LocalRay) -> None:
    trainer, worker = started(local_ray)
    ref = trainer.publish.remote()
    with pytest.raises(TimeoutError, match="a ref to it is still alive"):
        local_ray.get(trainer.change.remote(timeout=0.05))
    changed = trainer.change.remote(timeout=20)
    del ref
    local_ray.get(changed)
    assert local_ray.get(worker.total.remote(trainer.publish.remote())) == 10.0


def test_errors_are_those_of_ray(local_ray: LocalRay) -> None:
    trainer, worker = started(local_ray)
    with pytest.raises(KeyError, match="no such layer"):
        local_ray.get(trainer.fail.remote())
    with pytest.raises(KeyError, match="no such layer"):
        local_ray.get(worker.echo.remote(trainer.fail.options(tensor_transport="nixl").remote()))
    with pytest.raises(ValueError, match="two-sided"):
        local_ray.put(torch.ones(1), _tensor_transport="gloo")
    with pytest.raises(ValueError, match="unknown tensor transport: warp"):
        trainer.publish.options(tensor_transport="warp").remote()
    broken = local_ray.remote(Trainer).remote("four")
    with pytest.raises(local_ray.exceptions.ActorDiedError, match=r"the constructor of Trainer3 raised TypeError"):
        local_ray.get(broken.publish.remote())
    ref = trainer.publish.remote()
    local_ray.get(worker.total.remote(ref))
    local_ray.kill(trainer)
    with pytest.raises(local_ray.exceptions.ActorDiedError):
        local_ray.get(trainer.change.remote())


def test_nothing_takes_longer_than_it_may() -> None:
    over = threading.Event()

    class Sleeper:
        def sleep(self) -> None:
            over.wait(60)

    with LocalRay(seconds=0.1) as local_ray:
        sleeping = local_ray.remote(Sleeper).remote().sleep.remote()
        with pytest.raises(ray.exceptions.GetTimeoutError, match="get did not come back in time"):
            local_ray.get(sleeping)
        with pytest.raises(TimeoutError, match="something is still under way"):
            local_ray.held()
        with pytest.raises(ray.exceptions.GetTimeoutError, match="get did not come back in time"):
            local_ray.get(sleeping, timeout=0)
        over.set()
        assert sleeping.future.result(60) is None


def test_other_transports_are_used_where_they_are_named() -> None:
    with LocalRay(transports={"nixl": SocketPullTransport}) as local_ray:
        assert local_ray.get(local_ray.remote(Trainer).remote(3).publish.remote()).tolist() == [0.0, 1.0, 2.0]
        local_ray.experimental.register_tensor_transport("mine", ["cpu"], SocketPullTransport, torch.Tensor)
        ref = local_ray.put(torch.ones(2), _tensor_transport="mine")
        assert local_ray.get(ref).tolist() == [1.0, 1.0]
        with pytest.raises(ValueError, match="MINE is already registered"):
            local_ray.experimental.register_tensor_transport("MINE", ["cpu"], SocketPullTransport, torch.Tensor)


NOT_STOOD_IN: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "module": (lambda ray, _: ray.wait, "ray.wait has no stand-in in rdt_conformance.testing"),
    "experimental": (lambda ray, _: ray.experimental.set_resource, "ray.experimental.set_resource has no stand-in"),
    "functions": (lambda ray, _: ray.remote(sum), "'sum' is no class, and functions do not run as tasks here"),
    "option": (lambda ray, _: ray.remote(max_concurrency=2)(Worker), "option 'max_concurrency' of Worker is not known"),
    "options": (lambda ray, _: ray.remote(Worker).options(name="w"), "option 'name' of Worker is not known"),
    "async": (lambda _, trainer: trainer.later, "Trainer.later is an async or generator method"),
    "nested": (lambda ray, trainer: trainer.change.remote([ray.put(1)]), "can only be passed as an argument itself"),
}


@pytest.mark.parametrize("what", NOT_STOOD_IN)
def test_what_has_no_stand_in_says_so(local_ray: LocalRay, what: str) -> None:
    use, said = NOT_STOOD_IN[what]
    trainer, _ = started(local_ray)
    with pytest.raises(NotStoodIn) as raised:
        use(local_ray, trainer)
    assert said in str(raised.value)


def test_what_would_wait_in_vain_on_ray_says_so(local_ray: LocalRay) -> None:
    trainer, worker = started(local_ray)
    ref = trainer.publish.remote()
    with pytest.raises(WouldHang, match="'value' is a reference to tensors that is passed by keyword"):
        worker.echo.remote(value=ref)
    deaf = local_ray.remote(Worker).remote()
    with pytest.raises(WouldHang, match=r"Worker3 cannot receive tensors: its class needs @ray\.remote\(enable_tensor"):
        deaf.echo.remote(ref)
    assert local_ray.get(deaf.get_all.remote([ref])) == [6.0]


def test_a_module_is_as_it_was_afterwards(local_ray: LocalRay) -> None:
    module = types.ModuleType("users")
    actor_class = ray.remote(Trainer)
    names = {"ray": ray, "Trainer": actor_class, "get": ray.get, "wait": wait_tensor_freed, "aim": set_target_for_ref}
    vars(module).update(names, other=7)
    with pytest.raises(ZeroDivisionError), local_ray.instead_of_ray_in(module) as inside:
        assert inside is local_ray is module.ray
        assert module.get(module.Trainer.remote(2).publish.remote()).tolist() == [0.0, 1.0]
        assert module.wait == local_ray.experimental.wait_tensor_freed and module.other == 7
        _ = 1 / 0
    assert all(getattr(module, name) is value for name, value in names.items())
    assert not ray.is_initialized()
