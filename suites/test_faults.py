"""FAULTS: errors in the middle of a transfer, and metadata that cannot be trusted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.damage import damaged, foreign, metadata_of, replace_metadata
from rdt_conformance.checks.leaks import expect_no_growth
from rdt_conformance.engines.base import Pending
from rdt_conformance.engines.rdt import Ref
from rdt_conformance.engines.world import Held, Process

ARGUMENT = "as the argument of a task"
GET = "by a get"
A_WHILE = 1.0
"""Seconds in which the frees of objects are over that may have been damaged, or it is not waited for them."""
FEW = 20
"""Objects of a dead source that are fetched in turn."""
SOON = 2.0
"""Seconds after which a fetch that fails takes too long to be repeated. Some wait ever longer for who is not there."""


@check("R4", situational=("R4",))
def test_error_of_a_receive_reaches_the_consumer(case: Case) -> None:
    """A transport that adds something to the metadata cannot receive without it."""
    payload = case.draw(case.payloads(), "payload")
    way = case.draw(_ways(case), "received")
    good = [case.payload(seed=seed) for seed in range(case.draw(st.integers(0, 2), "good objects beside it"))]
    source, destination = case.actors(2)
    ref, *others = [source.produce(each) for each in (payload, *good)]
    known = metadata_of(case, ref)
    replace_metadata(case, ref, foreign(known))
    receiving = _receive(destination, way, *others, ref)
    if case.error(receiving, "R4") is not None:
        case.witness("R4")
    else:
        case.arrived(case.ok(receiving), *good, payload, clause="R4")
    replace_metadata(case, ref, known)
    _leave_other_half(case)


@check("R4", situational=("R4",))
def test_transfer_that_the_source_cannot_serve_ends(case: Case) -> None:
    """In an error, or not: what it brings then is not judged here."""
    payload = case.draw(case.payloads(), "payload")
    way = case.draw(_ways(case), "received")
    why = case.draw(st.sampled_from(["was killed", "has freed the object"]), "the source")
    received_before = case.draw(st.booleans(), "received before")
    source, destination = case.actors(2)
    tensors = source.build(payload, case.bench.device)
    ref = source.produce(tensors)
    metadata = metadata_of(case, ref)
    if received_before:
        case.ok(_receive(destination, way, ref))
    if why == "was killed":
        source.kill()
        case.leave_dirty()
    else:
        case.ok(source.collect(ref.obj_id, metadata, tensors), "G2")
    if case.error(_receive(destination, way, ref), "R4") is not None:
        case.witness("R4")
    _leave_other_half(case)


@check("R10")
def test_failed_fetches_add_up_to_nothing(case: Case) -> None:
    """For whatever reason; what does not fail, or not soon, is left out."""
    destination, source, dying = case.actors(3, first_at_one_end=True)
    payload = case.payload(256 << 10 if case.bench.engine == "local" else 2 << 20)

    def share(process: Process) -> tuple[str, bytes, Held]:
        tensors = process.build(payload, case.bench.device)
        return *case.described(process, tensors), tensors

    def fetch(obj_id: str, metadata: bytes, buffers: Held | None = None) -> Pending[Held]:
        fetching = destination.fetch(obj_id, metadata, case.comm_for_get(destination), buffers)
        return fetching if case.error(fetching, "R4") else destination.wait(obj_id, case.ok(fetching))

    def complete() -> None:
        obj_id, metadata, tensors = share(source)
        case.ok(fetch(obj_id, metadata), "L1")
        case.ok(source.collect(obj_id, metadata, tensors), "G2")

    def bring_freed(bring: Callable[[str, bytes], Pending[Held]]) -> bool:
        obj_id, metadata, tensors = share(source)
        case.ok(source.collect(obj_id, metadata, tensors), "G2")
        return case.error(bring(obj_id, metadata), "R4") is not None

    def receive(obj_id: str, metadata: bytes) -> Pending[Held]:
        return destination.recv(obj_id, metadata, case.comm_for_get(destination))

    def fetch_into_others() -> bool:
        obj_id, metadata, tensors = share(source)
        # Too large, so that no harm is done if they are not looked at, which is B6's matter.
        others = destination.make(case.kind.buffers, case.payload(2 * payload.nbytes), case.bench.device)
        error = case.error(fetch(obj_id, metadata, others), "R4")
        case.ok(source.collect(obj_id, metadata, tensors), "G2")
        return error is not None

    lost = itertools.cycle([share(dying)[:2] for _ in range(FEW)])
    dying.kill()
    case.leave_dirty()
    failing: dict[str, Callable[[], bool]] = {
        "of objects that were freed": lambda: bring_freed(fetch),
        "as an argument, of objects that were freed": lambda: bring_freed(receive),
        "from an actor that was killed": lambda: case.error(fetch(*next(lost)), "R4") is not None,
    }
    if case.target.takes_buffers:
        failing["into buffers that do not fit"] = fetch_into_others

    def cycle() -> None:
        for name, fails in list(failing.items()):
            began = time.monotonic()
            if not fails() or time.monotonic() - began > SOON:
                del failing[name]

    for _ in range(2):  # the first one may take longer
        cycle()
    tried = sorted(failing)
    case.fact("fetches that fail", tried or ["none did, or soon enough to be repeated"])
    if tried:
        each = f"each cycle: a fetch {', one '.join(tried)}"
        expect_no_growth(case, cycle, "R10", payload_bytes=payload.nbytes, control=complete, each=each)


@check("R6")
def test_damaged_metadata_end_in_an_error(case: Case) -> None:
    nbytes = case.draw(st.sampled_from([300, 5_000, 100_000]), "bytes")
    way = case.draw(_ways(case), "received")
    payload, another = case.payload(nbytes, 3, seed=1), case.payload(2 * nbytes, 3, seed=2)
    # Each way takes a new world, which is dear where that means new processes.
    begin, most = (0, None) if case.bench.engine == "local" else (case.draw(st.integers(0, 19), "begin with way"), 2)
    for number in itertools.islice(itertools.count(), most):
        source, destination = case.actors(2)
        ref, stranger = source.produce(payload), source.produce(another)
        known = metadata_of(case, ref)
        ways = list(damaged(known, metadata_of(case, stranger)))
        if number == len(ways):
            break
        what, metadata = ways[(begin + number) % len(ways)]
        replace_metadata(case, ref, metadata)
        receiving = _receive(destination, way, ref)
        receiving.what += f", when of its metadata {what}"
        if case.error(receiving, "R6", by_ray=True) is None:
            differences = case.ok(receiving).differences(payload)
            case.require(not differences, "R6", f"{what}, and no error was raised: {'; '.join(differences[:1])}")
        replace_metadata(case, ref, known)
        for each in (ref, stranger):
            each.drop()
        case.world.come_to_rest(A_WHILE)
        case.renew(used=True)  # what one damaged object does to later ones is another matter


def _ways(case: Case) -> st.SearchStrategy[str]:
    return st.sampled_from([ARGUMENT, GET] if case.target.one_sided.value else [ARGUMENT])


def _receive(destination: Process, way: str, *refs: Ref) -> Pending[Held]:
    return destination.get(*refs) if way == GET else destination.consume(*refs)


def _leave_other_half(case: Case) -> None:
    """The other half of a transfer that has failed may still be ending, or Ray may have had to kill its actor."""
    if not case.target.one_sided.value:
        case.leave_dirty()
