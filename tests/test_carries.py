"""What a transport carries at all is found out first, and nothing else is asked of one that refuses what it may."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import numpy
import pytest
import ray
import torch
from check_run import bench_of, run_check

from rdt_conformance.checks.bench import Bench
from rdt_conformance.checks.carries import Carries
from rdt_conformance.engines.base import Patience
from rdt_conformance.payloads import kind_for
from rdt_conformance.payloads.strategies import GAPS, NO_DIMENSIONS, NO_ELEMENTS, PART, SEVERAL
from reference_transports.inline import InlineMetadata, InlineTransport

pytestmark = pytest.mark.timeout(60)

DELIVERS = "test_a_produced_object_is_consumed"


# --- what a transport does not carry ------------------------------------------------------------------------------


class Choosy(InlineTransport):
    """Refuses much that it could carry."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        for tensor in rdt_object:
            if tensor.dtype is torch.bfloat16 or not tensor.dim() or not tensor.numel() or not tensor.is_contiguous():
                raise ValueError("not that")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


class Mangling(InlineTransport):
    """Rounds one dtype, and hands out tensors without dimensions with one."""

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        received = [tensor if tensor.dim() else tensor[None] for tensor in super().recv_multiple_tensors(*args)]
        return [tensor.float().double() if tensor.dtype is torch.float64 else tensor for tensor in received]


CHOOSY = {"bfloat16", NO_DIMENSIONS, NO_ELEMENTS, GAPS}


@pytest.mark.parametrize(
    ("transport", "avoided"),
    [(InlineTransport, set()), (Choosy, CHOOSY), (Mangling, {"float64", NO_DIMENSIONS})],
)
def test_what_is_not_carried_is_found_out(transport: type, avoided: set[str]) -> None:
    bench = bench_of(transport, torch.Tensor)
    began = time.monotonic()
    assert bench.carries == Carries(frozenset(avoided))
    assert time.monotonic() - began < 3  # 0.03 s on an idle machine
    assert bench.carries is bench.carries


class SmallOnly(InlineTransport):
    """Has room for so many bytes and tensors."""

    most_bytes, most_tensors = 1 << 20, 8

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if sum(tensor.nbytes for tensor in rdt_object) > self.most_bytes or len(rdt_object) > self.most_tensors:
            raise ValueError("too much for me")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


class FullAtOnce(InlineTransport):
    """Refuses every object of more than a few bytes but the first one."""

    first = ""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if sum(tensor.nbytes for tensor in rdt_object) > 256:
            self.first = self.first or obj_id
            if obj_id != self.first:
                raise ValueError("full")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


def test_what_is_too_large_is_found_out_and_not_sent() -> None:
    bench = bench_of(SmallOnly, torch.Tensor)
    limits = bench.carries.limits
    assert (limits.most_bytes, limits.most_tensors) == (1 << 20, 8)
    assert "ValueError: too much for me" in limits.refusal(1 << 23, 1) and not limits.refusal(1 << 20, 8)
    for check in ("test_both_directions_at_once", "test_count_and_order_hold"):
        result = run_check(bench, check)
        assert result.outcome in ("passed", "not run") and (result.outcome == "passed" or "too much" in result.reason)


def test_an_earlier_object_that_stands_in_the_way_is_no_limit() -> None:
    assert not bench_of(FullAtOnce, torch.Tensor).carries.limits.refusal(1 << 23, 1)


class Forgetful(InlineTransport):
    """Takes nothing that has come from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: list[Any] = []

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        self.arrived += (received := super().recv_multiple_tensors(*args, **kwargs))
        return received

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if any(tensor is arrived for tensor in rdt_object for arrived in self.arrived):
            raise ValueError("not that")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@pytest.mark.parametrize(
    ("transport", "actors"), [(InlineTransport, 2), (Choosy, 0), (Mangling, 0), (Forgetful, 0)], ids=str
)
def test_the_first_example_has_the_actors_with_which_all_went_well(transport: type, actors: int) -> None:
    """To start processes of their own takes seconds; but nothing that went wrong before may be its trouble."""
    bench = bench_of(transport, torch.Tensor)
    cast(Any, bench._engine).keeps_worlds = True
    assert bench.carries
    world = bench.acquire()
    assert len(world._actors) == actors
    assert world.first_use is not None, "those that come later have used the transport as well"
    bench.release(world, again=False)


@pytest.mark.parametrize("name", [DELIVERS, "test_tensors_shared_by_several_live_objects", "test_count_and_order_hold"])
def test_a_legal_refusal_breaks_nothing(name: str) -> None:
    result = run_check(bench_of(Choosy, torch.Tensor), name)
    assert (result.outcome, result.reason) == ("passed", "")


def test_what_arrives_wrongly_breaks_the_clause_for_that_alone() -> None:
    bench = bench_of(Mangling, torch.Tensor)
    in_order = "test_all_dtypes_and_shapes_in_one_object_keep_their_order"
    found = [
        run_check(bench, name) for name in (DELIVERS, in_order, "test_every_dtype_and_number_of_dimensions_arrives")
    ]
    assert [[failure.clause for failure in result.failures] for result in found] == [[], [], ["D1"]]
    assert found[0].facts["not sent by checks that are not about it"] == ["float64", NO_DIMENSIONS]


@pytest.mark.parametrize("data_type", [torch.Tensor, numpy.ndarray])
def test_payloads_avoid_traits(data_type: type) -> None:
    import hypothesis

    kind = kind_for(data_type)
    traits = [name for name, _ in kind.plain_traits()]
    assert traits[-5:] == [NO_DIMENSIONS, NO_ELEMENTS, SEVERAL, PART, GAPS]
    avoid = frozenset(["float32", *traits[-5:]])

    @hypothesis.settings(max_examples=100, database=None)
    @hypothesis.given(kind.payloads(plain=True, min_tensors=1, avoid=avoid), kind.families(avoid=avoid))
    def hold(payload: Any, family: Any) -> None:
        (recipe,) = payload.recipes
        assert recipe.layout.shape and recipe.nbytes
        for each in (recipe, *(member.recipes[0] for member in family.payloads)):
            assert each.layout.contiguous and each.memory.dtype != "float32"

    hold()


# --- a transport that carries nothing -----------------------------------------------------------------------------


class Nothing(InlineTransport):
    """Its library is missing."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        raise ModuleNotFoundError("No module named 'fast_copies'")


class FloatsOnly(InlineTransport):
    """Carries no bytes."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if any(not tensor.is_floating_point() for tensor in rdt_object):
            raise ValueError("floats only")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


def test_that_nothing_can_be_sent_is_said_once() -> None:
    bench = bench_of(Nothing, torch.Tensor)
    names = (
        DELIVERS,
        f"{DELIVERS}_as_keyword_argument",
        "test_count_and_order_hold",
        "test_the_transport_tells_its_name",
    )
    told, *others, static = [run_check(bench, name) for name in names]
    (failure,) = told.failures
    assert (told.outcome, failure.clause) == ("broken", "L1")
    assert failure.happened == (
        "not even one plain tensor could be sent: extract_tensor_transport_metadata on actor1 (main) raised "
        "ModuleNotFoundError: No module named 'fast_copies' (data type torch.Tensor [test], see --rdt-data-type)"
    )
    assert "fast_copies" in failure.error
    assert {(result.outcome, result.reason) for result in others} == {("not run", "nothing can be sent, see L1")}
    assert static.outcome == "passed"


def test_a_transport_that_refuses_what_most_checks_send_is_not_called_broken() -> None:
    result = run_check(bench_of(FloatsOnly, torch.Tensor), DELIVERS)
    assert result.outcome == "not run"
    assert result.reason.startswith("tensors of bytes, as most checks send them, are refused: extract_tensor")


class NeedsRay(InlineTransport):
    """Asks Ray who the actors are."""

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
        return src_actor.__ray_call__


def test_a_transport_that_needs_ray_is_not_said_to_carry_nothing() -> None:
    bench = bench_of(NeedsRay, torch.Tensor)
    assert bench.carries == Carries()
    assert "calls into an actor through Ray" in run_check(bench, DELIVERS).reason


class AsksTheActor(InlineTransport):
    """Looks into the actor through Ray, as Ray's own transports do, to see whether it has what is needed."""

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return ray.get(actor.__ray_call__.remote(lambda _: True))


def test_what_only_ray_can_answer_stands_in_the_way_of_nothing_else() -> None:
    bench = bench_of(AsksTheActor, torch.Tensor)
    assert run_check(bench, DELIVERS).outcome == "passed"
    assert run_check(bench, "test_whether_an_actor_has_the_transport").outcome == "not run"


class Hanging(InlineTransport):
    """Does not come back from receiving one dtype."""

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        received = super().recv_multiple_tensors(*args)
        if any(tensor.dtype is torch.float16 for tensor in received):
            time.sleep(4)
        return received


def test_what_hangs_is_not_carried() -> None:
    bench = bench_of(Hanging, torch.Tensor)
    bench.patience = Patience(call=1.0)
    assert bench.carries == Carries(frozenset({"float16"}))


def test_among_processes_nothing_is_said_to_hang_before_half_a_minute_until_something_has() -> None:
    """What takes long the first time has not hung; who has hung once has broken the contract already."""
    target = bench_of(Hanging, torch.Tensor).target
    for engine, first in (("local", 10.0), ("cluster", 30.0), ("ray", 30.0)):
        bench = Bench(target, engine, lambda *_: cast(Any, None), "quick", 0)
        seconds = [(bench.patience.call, bench.patience.abort)]
        for _ in range(5):
            bench.note_hang()
            seconds.append((bench.patience.call, bench.patience.abort))
        assert seconds == [(first, 5.0), (10.0, 5.0), (5.0, 2.5), (pytest.approx(10 / 3), 2.0), (2.5, 2.0), (2.0, 2.0)]


@pytest.mark.parametrize(("engine", "first"), [("local", 10.0), ("ray", 30.0)])
def test_what_gives_up_late_by_its_own_account_is_waited_for(engine: str, first: float) -> None:
    target = replace(bench_of(Hanging, torch.Tensor).target, gives_up_after=15.0)
    bench = Bench(target, engine, lambda *_: cast(Any, None), "quick", 0)
    assert bench.patience == Patience(call=first + 15)
    for _ in range(9):
        bench.note_hang()
    assert bench.patience == Patience(call=17.0, abort=2.0)


def test_what_takes_its_time_and_comes_back_is_given_as_much_again() -> None:
    """Else a transport that has hung, and takes seconds to connect, would be said to hang wherever it connects."""
    bench = bench_of(Hanging, torch.Tensor)
    bench.note_wait(1.5)
    assert bench.patience.call == 10.0
    for _ in range(5):
        bench.note_hang()
    assert bench.patience.call == 4.5
    bench.note_wait(0.1)
    assert bench.patience.call == 4.5
    bench.note_wait(9.0)
    assert bench.patience.call == 10.0
