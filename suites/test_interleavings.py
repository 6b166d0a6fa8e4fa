"""INTERLEAVINGS: the threads that Ray runs go on one at a time, in any order, also in the middle of a call.

On the local engine only. What a busy actor meets once in a million calls is met here by choice, and again whenever the
same choices are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.engines.base import Pending
from rdt_conformance.engines.world import Held, Process
from rdt_conformance.payloads import Payload

_MOMENT = 0.05
"""Seconds until a call that an abort has not ended is aborted again: the abort may have come before the call."""


@check("X1", interleaves=True)
def test_objects_pass_among_actors_in_any_order(case: Case) -> None:
    """Tasks make objects, other tasks take or get them, and references are dropped as soon as they are passed on."""
    actors = case.actors(case.draw(st.integers(2, 3), "actors"))
    plans = case.draw(
        st.lists(_plans(len(actors), gets=case.target.one_sided.value), min_size=1, max_size=4), "objects"
    )
    arriving: list[tuple[Pending[Held], Payload]] = []
    with case.interleaved():
        for number, plan in enumerate(plans):
            payload = case.payload(100, seed=number)
            ref = actors[plan.source].produce(payload)
            arriving += [(actors[taker].consume(ref), payload) for taker in plan.takers]
            if plan.getters:
                case.ok(case.driver.metadata_of(ref))  # a reference can be lent once its object exists
            arriving += [(actors[getter].get(ref), payload) for getter in plan.getters]
            ref.drop()
        for pending, payload in arriving:
            case.arrived(case.ok(pending), payload)


@check("X1", interleaves=True)
def test_a_call_is_interrupted_by_another(case: Case) -> None:
    """A call of one thread of an actor, and before each of its lines a call of another thread, for another object."""
    middle, peer = case.actors(2)
    tasks = st.sampled_from(["describe", *_of_kind(case, one_sided=["fetch"])])
    ray = st.sampled_from(["receive", "free", *_of_kind(case, two_sided=["send"])])
    verbs = case.draw(st.tuples(tasks, ray).flatmap(st.permutations), "calls of actor1")
    for order in case.interruptions():
        transfers = []
        for number, verb in enumerate(verbs):
            ends = (peer, middle) if verb in ("receive", "fetch") else (middle, peer)
            transfers.append(_Transfer(case, *ends, number, described=verb != "describe").prepare(verb))
        with case.in_order(order):
            for verb, transfer in zip(verbs, transfers, strict=True):
                transfer.begin(verb)
            for transfer in transfers:
                transfer.end("X1")
        for transfer in transfers:
            transfer.free()


@check("X1", interleaves=True)
def test_the_first_calls_of_an_actor_meet(case: Case) -> None:
    """The first object that an actor describes, and the first one that it receives; one is interrupted by the other."""
    verbs = case.draw(st.permutations(["describe", "receive"]), "calls of actor1")
    for order in case.interruptions():
        case.renew()
        middle, peer = case.actors(2)
        outward = _Transfer(case, middle, peer, 0, described=False)
        inward = _Transfer(case, peer, middle, 1).prepare("receive")
        with case.in_order(order):
            for verb in verbs:
                (outward if verb == "describe" else inward).begin(verb)
            outward.end("X1")
            inward.end("X1")
        outward.begin("receive")
        outward.end("X1")
        for transfer in (outward, inward):
            transfer.free()


@check("G4", interleaves=True)
def test_describing_is_interrupted_by_a_free(case: Case) -> None:
    """Or a free by the describing of another object with the same tensors; both, and a third one, are then received."""
    source, destination = case.actors(2)
    verbs = case.draw(st.permutations(["describe", "free"]), "calls of actor1")
    for order in case.interruptions():
        freed = _Transfer(case, source, destination, 0)
        staying, described = freed.sibling(), freed.sibling(described=False)
        with case.in_order(order):
            for verb in verbs:
                (freed if verb == "free" else described).begin(verb)
            freed.end("G4")
            described.end("G4")
        for transfer in (staying, described):
            transfer.begin("receive")
            transfer.end("G4")
            transfer.free()


@check("A8", "A3", "A5", interleaves=True)
def test_a_transfer_is_interrupted_by_its_abort(case: Case) -> None:
    """Or the abort by the transfer; afterwards another object, and then the same one, is transferred."""
    source, destination = case.actors(2)
    verb = case.draw(st.sampled_from(["receive", *_of_kind(case, one_sided=["fetch"])]), "way")
    abort_first = case.draw(st.booleans(), "the abort is interrupted")
    for order in case.interruptions():
        aborted, other = (_Transfer(case, source, destination, number).prepare(verb) for number in range(2))
        if verb == "fetch":
            aborted.begin(verb)
            aborted.settle()  # else the abort may meet it, which may then fail: see the next check
        with case.in_order(order):
            if abort_first:
                aborted.abort()
            aborted.begin("wait" if verb == "fetch" else verb)
            if not abort_first:
                aborted.abort()
            aborted.end_aborted()
            for transfer, clause in ((other, "A5"), (aborted, "A8")):
                transfer.begin(verb)
                transfer.end(clause)
        for transfer in (aborted, other):
            transfer.free()


@check("A5", "A3", "A8", interleaves=True)
def test_aborts_come_in_any_order(case: Case) -> None:
    """Some of several transfers are aborted, whatever has become of them by then; to the others it makes no difference.

    Afterwards each of the aborted objects is transferred once more.
    """
    source, destination = case.actors(2)
    verb = case.draw(st.sampled_from(["receive", *_of_kind(case, one_sided=["fetch"])]), "way")
    aborted = case.draw(st.lists(st.booleans(), min_size=1, max_size=3), "aborted")
    transfers = [_Transfer(case, source, destination, number) for number in range(len(aborted))]
    with case.interleaved():
        for transfer, given_up in zip(transfers, aborted, strict=True):
            transfer.begin(verb)
            if given_up:
                transfer.abort()
        for transfer, given_up in zip(transfers, aborted, strict=True):
            if given_up:
                transfer.end_aborted()
            else:
                transfer.end("A5")
        for transfer, given_up in zip(transfers, aborted, strict=True):
            if given_up:
                transfer.begin(verb)
                transfer.end("A8")


@check("G4", "O3", interleaves=True)
def test_frees_come_in_any_order(case: Case) -> None:
    """The same tensors are in several objects, and some of these are freed while others are described and received."""
    source, destination = case.actors(2)
    verb = case.draw(st.sampled_from(["receive", *_of_kind(case, one_sided=["fetch"])]), "way")
    first = _Transfer(case, source, destination, 0)
    freed = [first.sibling() for _ in range(case.draw(st.integers(1, 2), "freed meanwhile"))]
    late = first.sibling(described=False)
    with case.interleaved():
        late.begin("describe")
        first.begin(verb)
        for transfer in freed:
            transfer.begin("free")
        for transfer in (first, late):
            transfer.end("G4")
        for transfer in (first, late):
            transfer.begin(verb)
            transfer.end("G4")


class _Transfer:
    """An object of `source`, and the calls for it that are under way.

    Args:
        case: the example that it belongs to.
        source: has its tensors.
        destination: receives it.
        number: tells its contents apart from those of others.
        described: now, before anything else begins.
        tensors: those of another object, if it shares them.
    """

    def __init__(
        self,
        case: Case,
        source: Process,
        destination: Process,
        number: int,
        *,
        described: bool = True,
        tensors: Held | None = None,
    ) -> None:
        self._case, self._source, self._destination, self._number = case, source, destination, number
        self._payload = case.payload(100, seed=number)
        self._shares = tensors is not None
        self._tensors = tensors or source.build(self._payload, case.bench.device)
        self._obj_id = case.world.new_object_id()
        self._metadata = b""
        self._describing: Pending[bytes] | None = None
        self._fetching: Pending[Held] | None = None
        self._receiving: Pending[Held] | None = None
        self._sending: Pending[None] | None = None
        self._others: list[Pending[None]] = []
        self._freed = False
        self._comm = b""
        if described:
            self.begin("describe")
            self.end("L1")

    def sibling(self, *, described: bool = True) -> _Transfer:
        """Another object with the same tensors."""
        return _Transfer(
            self._case,
            self._source,
            self._destination,
            self._number,
            described=described,
            tensors=self._tensors,
        )

    def prepare(self, verb: str) -> _Transfer:
        """Get what Ray asks the transport for before each transfer; itself."""
        case = self._case
        if verb == "fetch":
            self._comm = case.comm_for_get(self._destination)
        elif verb in ("receive", "send"):
            self._comm = case.ok(case.driver.communicator(self._source, self._destination))
        return self

    def begin(self, verb: str) -> None:
        """Submit the calls of a verb."""
        if not self._comm:
            self.prepare(verb)
        ours = (self._obj_id, self._metadata)
        match verb:
            case "describe":
                self._describing = self._source.extract(self._obj_id, self._tensors)
            case "fetch":
                self._fetching = self._destination.fetch(*ours, self._comm)
            case "wait":
                assert self._fetching is not None, "nothing to wait for"
                self._receiving = self._destination.wait(self._obj_id, self._case.ok(self._fetching))
                self._fetching = None
            case "free":
                self._freed = True
                self._others.append(self._source.collect(*ours, self._tensors))
            case _:
                if not self._case.target.one_sided.value:
                    self._sending = self._source.send(self._obj_id, self._tensors, self._metadata, self._comm)
                self._receiving = self._destination.recv(*ours, self._comm)

    def settle(self) -> None:
        """Wait until the fetch has begun in earnest, and only its end is still to be waited for."""
        assert self._fetching is not None, "no fetch"
        self._case.ok(self._fetching)

    def abort(self) -> None:
        """Submit an abort on each side where Ray calls it."""
        for side in [self._destination] if self._case.target.one_sided.value else [self._source, self._destination]:
            self._others.append(side.abort(self._obj_id, self._comm))

    def end(self, clause: str) -> None:
        """See everything to its end, which has to be a good one; `clause` is broken if it is not."""
        case = self._case
        if self._describing is not None:
            self._metadata = case.ok(self._describing, clause)
        if self._fetching is not None:
            self.begin("wait")
        if self._receiving is not None:
            case.arrived(case.ok(self._receiving, clause), self._payload, clause=clause)
        if self._sending is not None:
            case.ok(self._sending, clause)
        for pending in self._others:
            case.ok(pending, clause)
        self._forget()

    def free(self) -> None:
        """Free the object, if that has not been done, and let go of its tensors."""
        if not self._freed:
            self.begin("free")
            self.end("G2")
        if not self._shares:
            self._tensors.drop()

    def end_aborted(self) -> None:
        """See everything to its end, which may be an error, but not other data."""
        case = self._case
        if self._fetching is not None and self._ends(self._fetching, self._destination, "A1"):
            self.begin("wait")
        if self._receiving is not None and self._ends(self._receiving, self._destination, "A1"):
            case.arrived(case.ok(self._receiving, "A1"), self._payload, clause="A1")
        if self._sending is not None:
            self._ends(self._sending, self._source, "A2")
        for pending in self._others:
            case.error(pending, "A9", case.patience.abort)
        self._forget()

    def _ends(self, pending: Pending[Held] | Pending[None], side: Process, clause: str) -> bool:
        """Whether a call ends well, aborted again and again until it ends at all."""
        for _ in range(int(self._case.patience.abort / _MOMENT / 2)):
            if pending.wait(_MOMENT):
                break
            self._case.error(side.abort(self._obj_id, self._comm), "A9", self._case.patience.abort)
        return self._case.error(pending, clause, self._case.patience.abort) is None

    def _forget(self) -> None:
        self._describing = self._fetching = self._receiving = self._sending = None
        self._others.clear()
        self._comm = b""  # new for each transfer


def _of_kind(case: Case, *, one_sided: Sequence[str] = (), two_sided: Sequence[str] = ()) -> Sequence[str]:
    return one_sided if case.target.one_sided.value else two_sided


@dataclass(frozen=True)
class _Plan:
    """What becomes of an object: who makes it, whose tasks take it as an argument, and whose get it."""

    source: int
    takers: list[int] = field(default_factory=list)
    getters: list[int] = field(default_factory=list)


def _plans(actors: int, *, gets: bool) -> st.SearchStrategy[_Plan]:
    who = st.integers(0, actors - 1)
    return st.builds(_Plan, who, st.lists(who, max_size=2), st.lists(who, max_size=2 if gets else 0))
