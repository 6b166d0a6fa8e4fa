"""FETCH: the two halves of a get, fetch_multiple_tensors and wait_fetch_complete."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from ray.experimental.rdt.tensor_transport_manager import FetchRequest, TensorTransportManager

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.damage import foreign
from rdt_conformance.checks.leaks import expect_no_growth
from rdt_conformance.checks.verdicts import broken
from rdt_conformance.engines.base import Pending
from rdt_conformance.engines.reference import user_code
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.payloads import Payload
from rdt_conformance.payloads.watching import Fingerprint

SIZES = (1 << 20, 8 << 20)
"""Bytes of the objects of which one is to be caught in flight."""
LARGE = (64 << 20,)
"""The same where it is to take long."""
TRIES = 4
MOST_TRIES = 10
"""How often a size is tried."""
TIMED_TRIES = 5
"""The same where one try may show nothing."""
CROWD = 3
"""How many fetches are under way at once, so that each takes its time."""
SLACK = 1.0
"""Seconds by which a timeout may be missed, once in `TIMED_TRIES`, on any machine."""
BLOCKED = 0.0003
"""Seconds in a wait that no work explains, if a later wait for as much data takes a tenth of it."""


@check("F1")
def test_fetch_gives_a_request_for_its_object(case: Case) -> None:
    payloads = case.draw(st.lists(case.payloads(), min_size=1, max_size=3), "payloads")
    source, destination = case.actors(2)
    fetches = [_Fetch.begin(case, source, destination, payload) for payload in payloads]
    for fetch in fetches:
        kind, obj_id = fetch.begun.apply(_kind_and_object)
        case.require(kind == "FetchRequest", "F1", f"fetch_multiple_tensors returned a {kind}, not a FetchRequest")
        case.require(obj_id == fetch.obj_id, "F1", f"the FetchRequest for {fetch.obj_id} has the obj_id {obj_id!r}")
    for fetch in fetches:
        fetch.complete("F1")


@check("F2")
def test_wait_with_a_timeout_of_zero_returns_at_once(case: Case) -> None:
    _expect_timeout_kept(case, 0.0, "F2")


@check("F3", situational=("F3",))
def test_wait_keeps_a_short_timeout(case: Case) -> None:
    if _expect_timeout_kept(case, case.draw(st.sampled_from([0.001, 0.0001, 0.005]), "timeout"), "F3"):
        case.witness("F3")


@check("F3", situational=("F3",))
def test_wait_does_not_time_out_early(case: Case) -> None:
    timeout = case.draw(st.sampled_from([0.9, 1.0, 5.0]), "timeout")
    crowd = _crowd(case, case.payload(min(SIZES[-1], case.budget.big_bytes)))
    last = crowd[-1]
    seconds, timed_out = last.time_wait(timeout, "F3")
    early = timed_out and seconds < 0.9 * timeout
    case.require(not early, "F3", f"a wait with a timeout of {timeout:g} s timed out after {seconds:.4f} s")
    for fetch in crowd:
        fetch.drop()


@check("F4", situational=("F4",))
def test_wait_after_a_timeout_gets_the_tensors(case: Case) -> None:
    """A transport whose tensors are there as soon as it is asked for them has nothing to be asked for again."""
    times = case.draw(st.integers(1, 4), "timeouts")
    timed_out = False
    for fetch in _to_be_caught(case):
        timed_out |= fetch.is_under_way("F4")
        if timed_out:
            if all(fetch.is_under_way("F4") for _ in range(times - 1)):
                fetch.complete("F4")
            break
    case.witness("F4")
    case.fact("a wait with a timeout of zero", ["timed out" if timed_out else "always brought the tensors"])


@check("F5")
def test_dropped_requests_add_up_to_nothing(case: Case) -> None:
    """Dropped at once, after a timeout, and after an abort."""
    source, destination = case.actors(2)
    payload = case.payload(256 << 10)

    def cycle() -> None:
        at_once, timed_out, aborted = (_Fetch.begin(case, source, destination, payload) for _ in range(3))
        at_once.drop()
        timed_out.is_under_way("F5")
        if case.target.can_abort.value:
            aborted.abort()
        for fetch in (timed_out, aborted):
            fetch.drop()

    def complete() -> None:
        fetch = _Fetch.begin(case, source, destination, payload)
        fetch.complete("F5")
        fetch.drop()

    expect_no_growth(case, cycle, "F5", payload_bytes=payload.nbytes, control=complete)


@check("F5")
def test_nothing_is_written_for_a_dropped_request(case: Case) -> None:
    """The user has given up the get, and goes on to use the buffers."""
    if not case.target.takes_buffers:
        return
    timed_out = case.draw(st.booleans(), "waited for before")
    tensors = case.draw(st.sampled_from([1, 40]), "tensors")
    source, destination = case.actors(2)
    payload = case.payload(min(8 << 20, case.budget.big_bytes), tensors)
    buffers = destination.make(case.kind.buffers, payload, case.bench.device)
    fetch = _Fetch.begin(case, source, destination, payload, buffers)
    if fetch.request is None:
        return  # a transport that takes no buffers cannot write into them either
    if timed_out and fetch.refuses_buffers("F5"):
        return
    # Queued right behind each other, so that nothing can be written unseen in between.
    dropping = destination.run(user_code.forget, fetch.request.key, what="dropping the request")
    looking = destination.run(user_code.apply, buffers.key, case.kind.fingerprint, ())
    case.ok(dropping, "F5")
    _Fetch.begin(case, source, destination, payload.inverse()).complete("F5")
    changes = buffers.apply(_changes, case.ok(looking))
    case.require(
        not changes,
        "F5",
        f"the target buffers were written into after the request was dropped: {'; '.join(changes[:2])}",
    )


@check("F6", situational=("F6",))
def test_fetch_that_fails_does_no_harm_to_others(case: Case) -> None:
    sizes = st.lists(st.sampled_from([100, 10_000, 8 << 20]), min_size=1, max_size=3)
    before, after = case.draw(sizes, "bytes of those before"), case.draw(sizes, "bytes of those after")
    why = case.draw(st.sampled_from(["its metadata are another transport's", "it was freed"]), "the one that fails")
    source, destination = case.actors(2)
    failing = case.payload(300)
    tensors = source.build(failing, case.bench.device)
    obj_id, metadata = case.described(source, tensors)
    if why == "it was freed":
        case.ok(source.collect(obj_id, metadata, tensors), "G2")
    else:
        metadata = foreign(metadata)
    comm = case.comm_for_get(destination)
    fetches = [_Fetch.begin(case, source, destination, case.payload(nbytes, seed=nbytes)) for nbytes in before]
    fetching = destination.fetch(obj_id, metadata, comm)
    fetches += [_Fetch.begin(case, source, destination, case.payload(nbytes, seed=nbytes + 1)) for nbytes in after]
    if case.error(fetching) or case.error(destination.wait(obj_id, case.ok(fetching))):
        case.witness("F6")
    for number in case.draw(st.permutations(range(len(fetches))), "waited for in order"):
        fetches[number].complete("F6")


@check("F7", situational=("F7",))
def test_fetches_overlap(case: Case) -> None:
    """If one fetch is under way when its call has returned, so are two."""
    seen = in_a_row = 0
    for nbytes in SIZES:
        seen = in_a_row = 0
        for number in range(MOST_TRIES):
            (alone,) = _crowd(case, case.payload(nbytes, seed=number), 1)
            under_way = alone.is_under_way("F7")
            pair = _crowd(case, case.payload(nbytes, seed=number), 2)
            together = all([fetch.is_under_way("F7") for fetch in pair])
            for fetch in (alone, *pair):
                fetch.drop()
            if together:
                case.witness("F7")
                return
            # On a busy machine one may be over by the time that it is looked at.
            seen, in_a_row = seen + under_way, in_a_row + 1 if under_way else 0
            if in_a_row == TRIES or (number + 1 == TRIES and not seen):
                break
    case.require(
        in_a_row < TRIES, "F7", f"one fetch was under way {TRIES} times in a row, and two at a time were in no try"
    )
    if not seen:  # nothing is, so there is nothing to overlap
        case.witness("F7")


@check("F8")
def test_receive_brings_the_same_as_fetch_and_wait(case: Case) -> None:
    payload = case.draw(case.payloads(plain=False), "payload")
    source, destination = case.actors(2)
    tensors = source.build(payload, case.bench.device)
    obj_id = case.world.new_object_id()
    extracting = source.extract(obj_id, tensors)
    case.unless(case.error(extracting) is not None)
    metadata = case.ok(extracting)
    comm = case.comm_for_get(destination)
    fetching = destination.fetch(obj_id, metadata, comm)
    if case.error(fetching) is None:
        fetching = destination.wait(obj_id, case.ok(fetching))
    comm = case.ok(case.driver.communicator(source, destination), "L1")
    brought = [_brought(case, each, payload) for each in (fetching, destination.recv(obj_id, metadata, comm))]
    case.require(brought[0] == brought[1], "F8", f"fetch and wait brought {brought[0]}, and recv brought {brought[1]}")


def _brought(case: Case, receiving: Pending[Held], payload: Payload) -> str:
    """What came of a receive, in words; whether it is what should have come is for other clauses to say."""
    error = case.error(receiving)
    if error is not None:
        return f"a {type(error).__name__}"
    held = case.ok(receiving)
    differences = held.differences(payload)
    found = differences or held.apply(case.kind.traits, case.bench.device)
    return f"tensors with a difference ({'; '.join(found)})" if found else "what was sent"


def _expect_timeout_kept(case: Case, timeout: float, clause: str) -> bool:
    """Wait with a timeout that is shorter than a transfer; whether that showed anything.

    A wait that times out in time keeps its timeout. One that always brings the tensors may simply be fast; it has
    blocked if it takes long, and a wait for tensors that have arrived does not. Or it had no core when its time was
    over, and has some by the time that it gets one: then larger objects take longer than that. Those take longer too
    where some fetches were over before they were waited for, so that only others could show that a wait blocks.
    """
    # The interface's own wait only hands over what the fetch has brought: how long that takes, the machine decides.
    own_wait = case.target.transport_class.wait_fetch_complete is not TensorTransportManager.wait_fetch_complete
    waits = _Waits()
    for sizes in (SIZES, LARGE):
        waits = _Waits.of(_to_be_caught(case, sizes), timeout, clause)
        if waits.missed:
            raise broken(clause, f"a wait with a timeout of {timeout:g} s ended after {min(waits.missed):.3f} s")
        if waits.kept or not own_wait or max(waits.early) <= timeout + BLOCKED:
            return True
        if waits.shortest <= timeout + BLOCKED:
            if sizes is LARGE:
                return True
        elif min(waits.late) > waits.shortest / 10:
            return False
    raise broken(
        clause,
        f"a wait with a timeout of {timeout:g} s brought the tensors after {waits.shortest:.4f} s or more, in all but "
        f"one of {TIMED_TRIES} tries; once they have arrived, it takes {min(waits.late):.4f} s",
    )


@dataclass
class _Waits:
    """What came of waits with a timeout, in seconds."""

    kept: bool = False
    """One timed out in time."""
    missed: list[float] = field(default_factory=list)
    """Those that timed out much later."""
    early: list[float] = field(default_factory=list)
    """Those that brought the tensors, of the largest objects."""
    late: list[float] = field(default_factory=list)
    """The same, when the tensors had arrived before."""

    @classmethod
    def of(cls, fetches: Iterator[_Fetch], timeout: float, clause: str) -> _Waits:
        """Wait for one fetch after the other until a timeout is kept."""
        waits, largest = cls(), 0
        for fetch in fetches:
            seconds, timed_out = fetch.time_wait(timeout, clause)
            if timed_out and seconds <= timeout + SLACK:
                waits.kept = True
                break
            if timed_out:
                waits.missed.append(seconds)
                continue
            if fetch.payload.nbytes > largest:
                largest = fetch.payload.nbytes
                waits.early, waits.late = [], []
            waits.early.append(seconds)
            waits.late.append(fetch.time_late_wait(timeout, clause))
        return waits

    @property
    def shortest(self) -> float:
        """Of those, but one: on a loaded machine a fetch may be over before the wait begins."""
        return sorted(self.early)[:2][-1]


def _to_be_caught(case: Case, sizes: Sequence[int] = SIZES) -> Iterator[_Fetch]:
    """Fetches that have just begun, ever larger. A transport that does not bring its own has nothing in flight."""
    for nbytes in sizes:
        for number in range(TIMED_TRIES if case.target.own_fetch.value else 1):
            crowd = _crowd(case, case.payload(nbytes, seed=number))
            yield crowd[-1]
            for fetch in crowd:
                fetch.drop()


def _crowd(case: Case, payload: Payload, count: int = CROWD) -> list[_Fetch]:
    """Fetches of several objects of the same tensors, all begun at once."""
    source, destination = case.actors(2)
    tensors = source.build(payload, case.bench.device)
    crowd = [_Fetch.of(case, source, destination, payload, tensors) for _ in range(count)]
    for fetch, fetching in [(fetch, fetch.start()) for fetch in crowd]:
        fetch.request = case.ok(fetching)
    return crowd


@dataclass
class _Fetch:
    """One fetch of an object that nobody else knows."""

    case: Case
    source: Process
    destination: Process
    payload: Payload
    tensors: Held
    obj_id: str
    metadata: bytes
    comm: bytes
    request: Held | None = None
    """None before it has begun, or if it was refused its target buffers."""

    @classmethod
    def of(cls, case: Case, source: Process, destination: Process, payload: Payload, tensors: Held) -> _Fetch:
        """A fetch of a new object that holds `tensors`; it has not begun yet."""
        obj_id, metadata = case.described(source, tensors)
        return cls(case, source, destination, payload, tensors, obj_id, metadata, case.comm_for_get(destination))

    @classmethod
    def begin(
        cls, case: Case, source: Process, destination: Process, payload: Payload, buffers: Held | None = None
    ) -> _Fetch:
        """Begin to fetch a new object."""
        fetch = cls.of(case, source, destination, payload, source.build(payload, case.bench.device))
        fetching = fetch.start(buffers)
        if buffers is None or case.error(fetching) is None:
            fetch.request = case.ok(fetching)
        return fetch

    def start(self, buffers: Held | None = None) -> Pending[Held]:
        """Call fetch_multiple_tensors."""
        return self.destination.fetch(self.obj_id, self.metadata, self.comm, buffers)

    @property
    def begun(self) -> Held:
        """The request, which is there."""
        assert self.request is not None
        return self.request

    def _wait(self, timeout: float = -1) -> Pending[Held]:
        return self.destination.wait(self.obj_id, self.begun, timeout)

    def complete(self, clause: str) -> None:
        """Wait for the tensors; `clause` is broken if they do not come."""
        self.case.arrived(self.case.ok(self._wait(), clause), self.payload, clause=clause)

    def is_under_way(self, clause: str) -> bool:
        """Whether a wait with a timeout of zero times out; `clause` is broken if it fails in another way."""
        return self._has_timed_out(self._wait(0.0), clause)

    def refuses_buffers(self, clause: str) -> bool:
        """Whether a wait with a timeout of zero refuses the buffers, as late as Ray lets it: a get does both."""
        waiting = self._wait(0.0)
        if isinstance(self.case.error(waiting, clause), ValueError):
            return True
        self._has_timed_out(waiting, clause)
        return False

    def _has_timed_out(self, waiting: Pending[Held], clause: str) -> bool:
        error = self.case.error(waiting, clause)
        timed_out = isinstance(error, TimeoutError)
        self.case.require(
            error is None or timed_out, clause, f"a wait that may time out raised {error!r}, which is no TimeoutError"
        )
        return timed_out

    def time_wait(self, timeout: float, clause: str) -> tuple[float, bool]:
        """Seconds in a wait with a timeout, and whether it timed out; `clause` is broken if it brings too little."""
        waiting = self._wait(timeout)
        timed_out = self._has_timed_out(waiting, clause)
        seconds = _seconds_in_last_wait(self.case)
        if not timed_out:
            held = self.case.ok(waiting)
            at_once = held.derive(copy.deepcopy)
            self._sibling().complete(clause)
            for each in (at_once, held):
                self.case.arrived(each, self.payload, clause=clause)
            at_once.drop()
        return seconds, timed_out

    def time_late_wait(self, timeout: float, clause: str) -> float:
        """Seconds in a wait for as many bytes, when they have had the time to arrive."""
        fetch, another = self._sibling(), self._sibling()
        another.complete(clause)
        seconds, _ = fetch.time_wait(timeout, clause)
        for each in (fetch, another):
            each.drop()
        return seconds

    def _sibling(self) -> _Fetch:
        return _Fetch.begin(self.case, self.source, self.destination, self.payload)

    def abort(self) -> None:
        """Abort it, and wait until it has ended, with an error or not."""
        self.case.error(self.destination.abort(self.obj_id, self.comm))
        self.case.error(self._wait())

    def drop(self) -> None:
        """Drop the request, and free the object. Its tensors may be another one's as well."""
        if self.request is not None:
            self.request.drop()
        self.case.ok(self.source.collect(self.obj_id, self.metadata, self.tensors), "G2")


def _seconds_in_last_wait(case: Case) -> float:
    waits = [step for step in case.world.history.steps() if step.what.startswith("wait_fetch_complete")]
    return (waits[-1].ended or waits[-1].at) - waits[-1].at


def _kind_and_object(request: Any) -> tuple[str, Any]:
    kind = FetchRequest if isinstance(request, FetchRequest) else type(request)
    return kind.__name__, getattr(request, "obj_id", None)


def _changes(tensors: list[Any], before: Fingerprint) -> list[str]:
    return before.changes(tensors)
