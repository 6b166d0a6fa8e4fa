"""The reference RDT and Ray do the same, and it would be noticed if they did not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from check_run import bench_of, run_check

from rdt_conformance.checks.bench import Bench
from rdt_conformance.contract import Level
from rdt_conformance.engines.base import Lane, Patience
from rdt_conformance.engines.engines import Engines
from rdt_conformance.engines.local import local_world
from rdt_conformance.engines.reference import owner, packing, user_code, work
from rdt_conformance.engines.reference.entry import Entry
from rdt_conformance.engines.reference.registry import Registration
from rdt_conformance.engines.reference.store import Store
from rdt_conformance.engines.reference.threads import ThreadHost
from rdt_conformance.engines.world import World
from rdt_conformance.fidelity import values
from rdt_conformance.fidelity.compare import differences
from rdt_conformance.fidelity.generate import programs
from rdt_conformance.fidelity.limits import LIMITS
from rdt_conformance.fidelity.play import Play, play
from rdt_conformance.fidelity.programs import Program, Traits
from rdt_conformance.fidelity.shorten import shortened
from rdt_conformance.fidelity.steps import (
    DRIVER,
    Area,
    Build,
    Consume,
    Drop,
    Get,
    Kill,
    Restart,
    Return,
    Shape,
    Together,
    Trouble,
)
from rdt_conformance.fidelity.study import Findings, Study
from rdt_conformance.payloads import kind_for
from rdt_conformance.verdict import Exit, judge
from reference_transports.inline import InlineTransport
from reference_transports.tcp import TcpTransport

pytestmark = pytest.mark.timeout(120)

ONE_SIDED = Traits(one_sided=True, can_abort=False, fits_buffers=True)
TWO_SIDED = Traits(one_sided=False, can_abort=True, fits_buffers=True)
KIND = kind_for(torch.Tensor)

each_traits = pytest.mark.parametrize("traits", [ONE_SIDED, TWO_SIDED], ids=["one-sided", "two-sided"])


# --- programs -----------------------------------------------------------------------------------------------------


@each_traits
def test_programs_hit_everything_that_rdt_does(traits: Traits) -> None:
    chosen = list(itertools.islice(programs(1, traits), 300))
    assert len(set(chosen)) == 300
    areas = Counter(area for program in chosen for area in program.areas(traits))
    expected = set(Area) if not traits.one_sided else set(Area) - {Area.TWO_SIDED}
    assert {area for area, number in areas.items() if number >= 10} == expected, areas
    steps = Counter(type(step).__name__ for program in chosen for step in program.simple_steps())
    assert min(steps.values()) >= 2, steps


def test_programs_are_the_same_for_the_same_seed() -> None:
    first, again, other = (list(itertools.islice(programs(seed, ONE_SIDED), 20)) for seed in (1, 1, 2))
    assert first == again != other


X1 = (Build("v1", "a", Shape.LIST), Return("x1", "a", "v1"))
PASSED = Program((*X1, Consume("v2", "b", ("x1", "x1")), Get("v3", DRIVER, ("x1",), timeout=5), Drop("x1")))


def test_programs_read_well() -> None:
    busy = Together((Return("x1", "a", "v1"), Consume("v2", "b", ("x1",))), busy="a")
    assert str(Program((*PASSED.steps, busy))).splitlines() == [
        "v1 = a makes a list of tensors",
        "x1 = a task of a returns v1",
        "v2 = a task of b takes x1, x1",
        "v3 = driver gets x1 within 5 s",
        "drop x1",
        "while a is busy: x1 = a task of a returns v1; v2 = a task of b takes x1",
    ]


def test_a_program_is_made_shorter() -> None:
    steps = (
        Build("v1", "a", Shape.LIST),
        Return("x1", "a", "v1"),
        Together((Consume("v2", "b", ("x1",)), Consume("v3", "c", ("x1",)))),
        Kill("c"),
        Build("v4", "b", Shape.LIST),
        Trouble("b", "extract_tensor_transport_metadata"),
        Return("x2", "b", "v4"),
        Restart("c"),
    )
    receives = shortened(Program(steps), lambda program: "v2 = a task of b takes x1" in str(program))
    assert receives == Program((*steps[:2], Together((Consume("v2", "b", ("x1",)),))))
    restarts = shortened(Program(steps), lambda program: any(isinstance(step, Restart) for step in program.steps))
    assert restarts == Program((Kill("c"), Restart("c")))
    fails = shortened(Program(steps), lambda program: "x2" in str(program))
    assert fails == Program((steps[4], steps[6]))


# --- what would be noticed ----------------------------------------------------------------------------------------


@pytest.fixture
def local() -> Iterator[Callable[[], World]]:
    """Makes worlds of threads, which play programs in a few milliseconds."""
    made: list[World] = []

    def make(transport: type[Any] = InlineTransport) -> World:
        name = transport().tensor_transport_backend()
        made.append(local_world(Registration(name, ("cpu",), transport, torch.Tensor), first_use=KIND.simple(16)))
        return made[-1]

    yield make
    for world in made:
        world.close()


def played(program: Program, world: World) -> Play:
    return play(program, world, KIND, "cpu", Patience.call)


@pytest.mark.parametrize(
    ("transport", "traits"), [(InlineTransport, ONE_SIDED), (TcpTransport, TWO_SIDED)], ids=["inline", "tcp"]
)
def test_a_program_comes_to_the_same_twice(local: Callable[..., World], transport: type, traits: Traits) -> None:
    one, other = local(transport), local(transport)
    for program in itertools.islice(programs(7, traits), 40):
        first, second = played(program, one), played(program, other)
        assert first.clean and second.clean, program
        assert differences(first, second) == [], program


def skip_collecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "free", lambda worker, obj_id, *_: worker.store.drop_primary(obj_id))


def collect_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def free(worker: Any, obj_id: str, transport: str, metadata: bytes) -> None:
        worker.call(transport, "garbage_collect", obj_id, work.load(metadata), [], obj_id=obj_id)
        right(worker, obj_id, transport, metadata)

    right = work.free
    monkeypatch.setattr(work, "free", free)


def receive_on_another_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(self: ThreadHost, to: str, lane: Lane, function: Any, *args: Any) -> Future[Any]:
        return right(self, to, Lane.ERROR if function is work.receive else lane, function, *args)

    right = ThreadHost.submit
    monkeypatch.setattr(ThreadHost, "submit", submit)


def receive_for_every_mention(monkeypatch: pytest.MonkeyPatch) -> None:
    def pass_to(self: owner.Owner, entry: Entry, destination: str) -> None:
        right(self, entry, destination)
        right(self, entry, destination)

    right = owner.Owner._pass_to
    monkeypatch.setattr(owner.Owner, "_pass_to", pass_to)


def swap_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    right = packing.put_back
    monkeypatch.setattr(packing, "put_back", lambda skeleton, tensors: right(skeleton, tensors[::-1]))


def raise_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Store, obj_id: str, timeout: float) -> list[Any]:
        raise LookupError(obj_id)

    monkeypatch.setattr(Store, "take", take)


def fetch_without_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    from rdt_conformance.engines.reference.worker import Worker

    def call(self: Worker, transport: str, method: str, *args: Any, **kwargs: Any) -> Any:
        if method == "get_communicator_metadata" and args[0] is None:
            return self.registry.instance(transport).get_communicator_metadata(*args)
        return right(self, transport, method, *args, **kwargs)

    right = Worker.call
    monkeypatch.setattr(Worker, "call", call)


def ignore_the_users_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    right = user_code.get

    def get(worker: Any, refs: Any, timeout: float | None, *args: Any) -> int:
        return right(worker, refs, None, *args)

    monkeypatch.setattr(user_code, "get", get)


CHANGES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    skip_collecting: "x1 in a, call 2: _ray_system: garbage_collect(2 tensors) -> ok on the reference, nothing on Ray",
    collect_twice: "x1 in a, call 2: _ray_system: garbage_collect(2 tensors) -> ok on the reference, "
    "_ray_system: garbage_collect(0 tensors) -> ok on Ray",
    receive_on_another_lane: "x1 in b, call 1: _ray_system: recv_multiple_tensors() -> 2 tensors on the reference, "
    "_ray_system_error: recv_multiple_tensors() -> 2 tensors on Ray",
    receive_for_every_mention: "x1 in b, call 2: nothing on the reference, "
    "_ray_system: recv_multiple_tensors() -> 2 tensors on Ray",
    swap_tensors: "3. v2 = a task of b takes x1, x1: [[t1 torch.uint8[32]",
    raise_something_else: "LookupError on Ray",
    fetch_without_communicator: "calls in driver that name no object, call 3: main: get_communicator_metadata(no "
    "source, no destination) -> CommunicatorMetadata on the reference, nothing on Ray",
    ignore_the_users_timeout: "x1 in driver, call 2: main: wait_fetch_complete(the user's timeout) -> 2 tensors on the "
    "reference, main: wait_fetch_complete(Ray's timeout) -> 2 tensors on Ray",
}
"""Ways in which Ray could come to differ -> what is said of it."""


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_difference_is_noticed(
    local: Callable[..., World], monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    as_it_is = played(PASSED, local())
    world = local()
    change(monkeypatch)
    found = differences(as_it_is, played(PASSED, world))
    assert any(CHANGES[change] in sentence for sentence in found), found


def test_what_never_comes_back_is_a_difference(local: Callable[..., World]) -> None:
    as_it_is = played(PASSED, local())
    world = local()
    with world.actors(3)[1].busy():
        stuck = play(PASSED, world, KIND, "cpu", seconds=0.2)
    assert not stuck.clean
    assert any("takes x1, x1: " in sentence and "no answer" in sentence for sentence in differences(as_it_is, stuck))


def test_a_get_keeps_its_object(local: Callable[..., World]) -> None:
    """Also if the reference is dropped before the object exists: the caller of a get has one too."""
    late = Together((Return("x1", "a", "v1"), Get("v2", DRIVER, ("x1",)), Drop("x1")), busy="a")
    program = Program((Build("v1", "a", Shape.LIST), late))
    world = local()
    for _ in range(20):
        play_of_it = played(program, world)
        assert play_of_it.clean
        assert dict(play_of_it.outcomes)["2. v2 = driver gets x1"].startswith("[[t1 torch.uint8[32]")


# --- for real -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    engines = Engines()
    yield engines
    engines.stop()


@pytest.fixture
def study(engines: Engines, request: pytest.FixtureRequest) -> Iterator[Study]:
    target = bench_of(request.param, torch.Tensor).target
    benches = [Bench(target, engine, engines.start, "thorough", seed=1) for engine in ("cluster", "ray")]
    yield Study(*benches)
    for bench in benches:
        bench.close()


@pytest.mark.parametrize("study", [InlineTransport, TcpTransport], ids=["inline", "tcp"], indirect=True)
def test_the_reference_does_what_ray_does(study: Study) -> None:
    findings = study.compare(itertools.islice(programs(3, study.traits), 8), seconds=60)
    assert not findings.differences, [str(difference) for difference in findings.differences]
    assert findings.programs == 8
    study.check_limits(findings)
    assert not findings.limits_gone
    assert len(findings.limits) == sum(limit.applies(study.traits) for limit in LIMITS)


def test_between_examples_borrowers_forget_what_ray_keeps_for_ever(engines: Engines) -> None:
    """Or a check would take it for a leak of the transport."""
    bench = Bench(bench_of(InlineTransport, torch.Tensor).target, "ray", engines.start, "quick", seed=1)
    world = bench.acquire()
    source, destination = world.actors(2)
    ref = source.produce(KIND.simple(16))
    destination.get(ref).result()
    ref.drop()
    assert world.come_to_rest()
    before = destination.run(values.kept, ref.obj_id).result()
    assert world.reset()
    after = destination.run(values.kept, ref.obj_id).result()
    bench.release(world, again=False)
    bench.close()
    assert (before, after) == ("metadata", "nothing")


def test_a_difference_is_no_fault_of_the_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in the way of a verdict all the same: what the reference says may not hold on Ray."""
    target = bench_of(InlineTransport, torch.Tensor).target
    bench = Bench(target, "local", Engines().start, "standard", seed=1)
    monkeypatch.setattr(Bench, "beside", lambda *_: Bench(target, "local", Engines().start, "standard", seed=1))
    same = run_check(bench, "test_the_reference_does_what_ray_does")
    assert (same.outcome, same.facts["fidelity programs"], same.facts["fidelity differences"]) == ("passed", 6, 0)
    monkeypatch.setattr("rdt_conformance.fidelity.study.differences", lambda *_: ["it rains here only"])
    different = run_check(bench, "test_the_reference_does_what_ray_does")
    bench.close()
    assert different.outcome == "error" and "differs: it rains here only" in different.reason
    verdict = judge([different], target, ["ray"], selected_all=True)
    assert verdict.exit_status is Exit.HARNESS_ERROR
    assert not any(verdict.broken(level) for level in Level)


def test_a_transport_that_carries_nothing_is_not_studied() -> None:
    class Refusing(InlineTransport):
        def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
            raise ValueError("not today")

    result = run_check(bench_of(Refusing, torch.Tensor), "test_the_reference_does_what_ray_does")
    assert (result.outcome, result.facts) == ("not run", {"fidelity programs": 0})
    assert "not today" in result.reason


def test_facts() -> None:
    findings = Findings(programs=2, areas=Counter({Area.FREEING: 2, Area.RETURNS: 1}), limits=["one"])
    assert findings.facts() == {
        "fidelity programs": 2,
        "fidelity areas": ["task returns (1)", "freeing (2)"],
        "fidelity differences": 0,
        "Ray limits that still hold": ["one"],
        "Ray limits that are gone": [],
    }
