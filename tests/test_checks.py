"""Checks are fair to transports that refuse what they may, count on what Ray guarantees, or carry nothing at all."""

from __future__ import annotations

import dataclasses
import resource
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import hypothesis.internal.conjecture.engine as hypothesis_engine
import numpy
import pytest
import torch
from check_run import bench_of, run_check
from ray.experimental import TensorTransportMetadata

from rdt_conformance import author, pickling
from rdt_conformance.checks.bench import Bench
from rdt_conformance.contract import CLAUSES
from rdt_conformance.engines.base import Origin, mark_origin
from rdt_conformance.engines.engines import Engines
from rdt_conformance.engines.local import local_world
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.file_limit import allow_many_files
from rdt_conformance.observe.leaks import Growth
from rdt_conformance.payloads import kind_for
from rdt_conformance.payloads.strategies import GAPS
from reference_transports.inline import InlineMetadata, InlineTransport
from reference_transports.tcp import TcpTransport

pytestmark = pytest.mark.timeout(60)

DELIVERS = "test_a_produced_object_is_consumed"


# --- what a later engine tries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "all_again"), [("standard", False), ("thorough", True)])
def test_all_kinds_of_payload_are_tried_once(profile: str, all_again: bool) -> None:
    """On later engines of a run only some, and other ones with another seed."""
    target = bench_of(InlineTransport, torch.Tensor).target
    tried: list[set[str]] = []

    class Watching(InlineTransport):
        def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
            tried[-1] |= {f"{tensor.dtype} {tensor.shape} {tensor.stride()}" for tensor in rdt_object}
            return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    target = dataclasses.replace(target, transport_class=Watching)
    for seed, later in ((1, False), (1, True), (2, True)):
        tried.append(set())
        bench = Bench(target, "local", Engines().start, profile, seed, alone=True, later=later)
        assert run_check(bench, "test_extract_leaves_the_tensors_as_they_were").outcome == "passed"
    everything, first, second = map(len, tried)
    assert (first, second) == (everything, everything) if all_again else max(first, second) < everything
    assert all_again or tried[1] != tried[2]


# --- what is left when an example ends ----------------------------------------------------------------------------


class Collecting(InlineTransport):
    """Notes what it is given to collect, and fails at it."""

    collected: list[tuple[str, list[list[int]]]] = []  # noqa: RUF012

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        assert isinstance(tensor_transport_meta, InlineMetadata)
        self.collected.append((obj_id, [tensor.tolist() for tensor in tensors]))
        raise ValueError("and fails")


def test_a_described_object_is_collected_before_its_world_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    """As Ray's store does, the world keeps the tensors until then."""
    Collecting.collected.clear()
    world = local_world(Registration("COLLECTING", ("cpu",), Collecting, torch.Tensor))
    payload = kind_for(torch.Tensor).simple(4)
    try:
        (source,) = world.actors(1)
        for process, obj_id in [(source, "left"), (source, "collected"), (world.driver, "left by the driver")]:
            tensors = process.build(payload)
            metadata = process.extract(obj_id, tensors).result()
            if obj_id == "collected":
                process.collect(obj_id, metadata, tensors).error()
            tensors.drop()
        assert [obj_id for obj_id, _ in Collecting.collected] == ["collected"]
        assert world.reset()
        lanes = {step.lane for step in world.history.steps() if step.process == "driver" and "garbage" in step.what}
        world.reset()
    finally:
        world.close()
    assert sorted(Collecting.collected)[1:] == [
        (obj_id, [tensor.tolist() for tensor in payload.build()]) for obj_id in ("left", "left by the driver")
    ]
    assert lanes == {"io"}
    assert caplog.text.count("failed to collect object") == 2


# --- clauses that say what they mean ------------------------------------------------------------------------------


class Forgiving(InlineTransport):
    """Gives what it has, whatever the metadata describe."""

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        payload = tensor_transport_metadata.payload
        described = [(torch.Size([len(data)]), torch.uint8) for data in payload]
        honest = dataclasses.replace(tensor_transport_metadata, tensor_meta=described)
        return super().recv_multiple_tensors(obj_id, honest, communicator_metadata, target_buffers)


class Garbling(Forgiving):
    """Gives something even if it has nothing."""

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        payload = [data or b"garbage" for data in tensor_transport_metadata.payload or [b"a", b"b", b"c"]]
        guessed = dataclasses.replace(tensor_transport_metadata, payload=payload)
        return super().recv_multiple_tensors(obj_id, guessed, communicator_metadata, target_buffers)


def test_an_error_of_rays_is_an_error_for_damaged_metadata() -> None:
    name = "test_damaged_metadata_end_in_an_error"
    assert run_check(bench_of(Forgiving, torch.Tensor), name).failures == ()
    (failure,) = run_check(bench_of(Garbling, torch.Tensor), name).failures
    assert failure.clause == "R6"
    assert failure.happened.startswith("payload is None, and no error was raised")


def test_numpy_transports_owe_nothing_about_target_buffers() -> None:
    applies = {
        data_type: {clause for clause in CLAUSES if clause[0] == "B" and bench.target.applies(CLAUSES[clause])}
        for data_type in (torch.Tensor, numpy.ndarray)
        for bench in [bench_of(InlineTransport, data_type)]
    }
    assert applies == {torch.Tensor: {"B1", "B2", "B3", "B4", "B6"}, numpy.ndarray: set()}
    facts = {fact.name: fact.value for fact in bench_of(InlineTransport, numpy.ndarray).target.facts}
    assert facts["buffers"].startswith("never")


class Doubling(InlineTransport):
    """Wrong in the same way whoever asks."""

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        return [tensor.flatten() for tensor in super().recv_multiple_tensors(*args)]


class Deaf(InlineTransport):
    """Wrong only as the argument of a task."""

    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        received = super().recv_multiple_tensors(*args)
        return received if len(args) > 3 else [tensor.flatten() for tensor in received]


def test_receive_and_fetch_need_only_be_alike() -> None:
    name = "test_receive_brings_the_same_as_fetch_and_wait"
    assert run_check(bench_of(Doubling, torch.Tensor), name).failures == ()
    (failure,) = run_check(bench_of(Deaf, torch.Tensor), name).failures
    assert failure.clause == "F8"


class FlattensLate(InlineTransport):
    """Takes what is contiguous, and finds out when it is received that a single element has a stride of 2."""

    kept: ClassVar[dict[str, list[torch.Tensor]]] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        self.kept[obj_id] = [tensor for tensor in rdt_object if tensor.is_contiguous() and tensor.dim()]
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def recv_multiple_tensors(self, obj_id: str, *args: Any, **kwargs: Any) -> list[Any]:
        for tensor in self.kept[obj_id]:
            tensor.detach().contiguous().flatten().view(torch.uint8)
        return super().recv_multiple_tensors(obj_id, *args, **kwargs)


def test_a_single_element_with_any_stride_is_among_the_views() -> None:
    result = run_check(bench_of(FlattensLate, torch.Tensor), "test_every_view_arrives_or_is_refused")
    (failure,) = result.failures
    assert failure.clause == "D3" and "stride" in failure.happened, failure.happened


class Unsteady(InlineTransport):
    """Fails to receive large objects."""

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        received = super().recv_multiple_tensors(*args, **kwargs)
        if sum(len(tensor) for tensor in received) > 10_000:
            raise ValueError("too large")
        return received


def test_a_cycle_that_fails_breaks_the_clause_of_what_failed() -> None:
    (failure,) = run_check(bench_of(Unsteady, torch.Tensor), "test_freed_objects_leave_nothing").failures
    assert failure.clause == "L1"


class RefusesLate(TcpTransport):
    """Accepts what it cannot send."""

    def send_multiple_tensors(self, tensors: list[Any], *args: Any) -> None:
        if not all(tensor.is_contiguous() for tensor in tensors):
            raise ValueError("cannot be sent")
        super().send_multiple_tensors(tensors, *args)


def test_a_send_that_fails_is_told_and_not_the_receive_that_waits_for_it() -> None:
    bench = bench_of(RefusesLate, torch.Tensor)
    assert bench.carries.avoid == {GAPS}
    (failure,) = run_check(bench, "test_every_view_arrives_or_is_refused").failures
    assert failure.clause == "D3"
    assert failure.happened.startswith("send_multiple_tensors on actor1 (_ray_system) raised ValueError")
    assert len(failure.example) == 1
    assert failure.example[0].startswith("sent = 1 tensor: float")


class TakesAllTensors(InlineTransport):
    """Refuses nothing but what is no tensor."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        try:
            return super().extract_tensor_transport_metadata(obj_id, rdt_object)
        except ValueError:
            if not all(isinstance(tensor, torch.Tensor) for tensor in rdt_object):
                raise
            return super().extract_tensor_transport_metadata(obj_id, [])


def test_an_example_that_is_given_up_does_not_cost_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(TakesAllTensors, torch.Tensor)
    worlds: list[object] = []
    new_world = bench.new_world

    def counted(*args: Any, **kwargs: Any) -> Any:
        worlds.append(new_world(*args, **kwargs))
        return worlds[-1]

    monkeypatch.setattr(bench, "new_world", counted)
    assert bench.carries.avoid == frozenset()
    result = run_check(bench, "test_nothing_refers_to_the_tensors_of_a_refused_object")
    assert (result.outcome, len(worlds)) == ("passed", 2)  # one to find out what it carries, one for all examples


class Absent(InlineTransport):
    """Needs what is not installed where the actors are, as it says."""

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return False


def test_a_transport_that_actors_do_not_have_is_told_once() -> None:
    bench = bench_of(Absent, torch.Tensor)
    results = [run_check(bench, name) for name in (DELIVERS, "test_freed_objects_leave_nothing")]
    (failure,) = results[0].failures
    assert failure.clause == "L1"
    assert "actor_has_tensor_transport said that actor1 does not have the transport" in failure.happened
    assert [(result.outcome, result.reason) for result in results[1:]] == [("not run", "nothing can be sent, see L1")]


class NeverEmpty(InlineTransport):
    """Takes an object without tensors for a mistake."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> InlineMetadata:
        if not rdt_object:
            raise ValueError("nothing to send")
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


def test_metadata_that_are_not_made_are_not_said_to_travel_badly() -> None:
    bench = bench_of(NeverEmpty, torch.Tensor)
    names = ("test_metadata_travel", "test_an_object_without_tensors_in_single_calls")
    results = [run_check(bench, name) for name in names]
    assert [result.outcome for result in results] == ["passed", "broken"]
    assert results[0].examples >= 2 and results[1].failures[0].clause == "M4"


class Hoarding(InlineTransport):
    """Keeps what it has received for ever."""

    def __init__(self) -> None:
        self.kept: list[list[Any]] = []

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        self.kept.append(super().recv_multiple_tensors(*args, **kwargs))
        return self.kept[-1]


def test_what_could_not_be_carried_out_once_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine lets a check down at one time and not at the next."""
    tries: list[int] = []

    def slow_at_first(*args: Any, **kwargs: Any) -> Growth:
        tries.append(1)
        return Growth([], {}, 3, judged=len(tries) > 1)

    monkeypatch.setattr("rdt_conformance.checks.leaks.growth", slow_at_first)
    result = run_check(bench_of(InlineTransport, torch.Tensor), "test_freed_objects_leave_nothing")
    assert (result.outcome, len(tries)) == ("not run", 1)
    assert result.reason.startswith("only 3 cycles could be run")


def test_memory_that_a_completed_fetch_takes_as_well_is_not_held_against_a_dropped_one() -> None:
    bench = bench_of(Hoarding, torch.Tensor)
    assert run_check(bench, "test_dropped_requests_add_up_to_nothing").outcome == "passed"
    assert run_check(bench, "test_freed_objects_leave_nothing").outcome == "broken"


def test_where_an_error_came_from_is_known_in_another_process() -> None:
    try:
        raise ValueError("of the transport")
    except ValueError as error:
        mark_origin(error, Origin("recv_multiple_tensors", "actor2", "main"))
        raised = author.traceback_of(error)
        arrived = pickling.loads(pickling.dumps(error))
    assert f'File "{__file__}"' in raised and raised.endswith("ValueError: of the transport")
    assert author.traceback_of(arrived) == raised


# --- the run ------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_files() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = (min(1024, before[1]), before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, few)
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_bench_may_open_many_files(few_files: Sequence[int]) -> None:
    bench_of(InlineTransport, torch.Tensor)
    most = 65_536 if few_files[1] == resource.RLIM_INFINITY else min(few_files[1], 65_536)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, few_files[1])
    allow_many_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, few_files[1])


class Reversing(InlineTransport):
    """Hands out the last tensor first."""

    def recv_multiple_tensors(self, *args: Any, **kwargs: Any) -> list[Any]:
        return super().recv_multiple_tensors(*args)[::-1]


def test_a_failure_that_takes_long_to_make_small_is_not_for_hypothesis_to_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = bench_of(Reversing, torch.Tensor)
    bench.budget = dataclasses.replace(bench.budget, shrink_seconds=0)
    assert run_check(bench, "test_count_and_order_hold").outcome == "broken"
    assert capsys.readouterr().out == ""
    assert hypothesis_engine.MAX_SHRINKING_SECONDS == 300  # for the author's own tests it is as it was
