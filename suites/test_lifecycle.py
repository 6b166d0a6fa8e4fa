"""LIFECYCLE: producing, passing, getting and dropping objects, in every role and combination that Ray allows."""

from __future__ import annotations

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.refusals import is_refusal
from rdt_conformance.engines.rdt import Ref
from rdt_conformance.engines.reference.user_code import nothing
from rdt_conformance.engines.world import Process
from rdt_conformance.payloads.base import Payload
from rdt_conformance.ray_interface import installed_interface

MANY, MANY_BETWEEN_PROCESSES = 300, 70
"""Live objects, above powers of two at which tables end."""


@check("L1")
def test_a_produced_object_is_consumed(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    if case.bench.carries.avoid:
        case.fact("not sent by checks that are not about it", sorted(case.bench.carries.avoid))
    if further := case.bench.carries.further:
        case.fact("actors are placed", f"{case.bench.carries.spread.value}, as further apart {further}")
    source, destination = case.actors(2)
    case.arrived(case.ok(destination.consume(source.produce(payload))), payload)


@check("L1", ray_limit="references that are passed by keyword are never transferred")
def test_a_produced_object_is_consumed_as_keyword_argument(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source, destination = case.actors(2)
    case.arrived(case.ok(destination.consume(tensors=source.produce(payload))), payload)


@check("L2")
def test_one_object_reaches_many_receivers(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    at_once = case.draw(st.booleans(), "all receivers at once")
    source, *receivers = case.actors(4, first_at_one_end=True)
    ref = source.produce(payload)
    arriving = []
    for receiver in receivers:
        arriving.append(receiver.consume(ref))
        if not at_once:
            case.ok(arriving[-1])
    for pending in arriving:
        case.arrived(case.ok(pending), payload)


@check("L3")
def test_the_same_receiver_receives_again(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    times = case.draw(st.integers(2, 4), "times")
    source, destination = case.actors(2)
    ref = source.produce(payload)
    for held in [case.ok(destination.consume(ref)) for _ in range(times)]:
        case.arrived(held, payload)
    if case.target.one_sided.value:
        for held in [case.ok(destination.get(ref)) for _ in range(times)]:
            case.arrived(held, payload)


@check("L4")
def test_live_objects_of_one_source_keep_apart(case: Case) -> None:
    """Ids of puts of one task, and the driver is one, differ in the last 8 of 56 digits only, so they come first."""
    count = case.draw(st.integers(2, 12), "objects")
    payloads = [case.payload(64, seed=number) for number in range(count)]
    makers = [_put_by_driver] if case.driver_takes_part else []
    makers += [_put_by_actor, _produced] if case.target.one_sided.value else [_produced]
    make = case.draw(st.sampled_from(makers), "made by")
    source, destination = case.actors(2)
    refs = [make(case, source, payload) for payload in payloads]
    order = case.draw(st.permutations(range(count)), "received in order")
    for number in order:
        case.arrived(case.ok(destination.consume(refs[number])), payloads[number])


@check("L4")
def test_many_live_objects_of_one_source_keep_apart(case: Case) -> None:
    source, destination = case.actors(2)
    count = MANY if case.bench.engine == "local" else MANY_BETWEEN_PROCESSES
    payloads = [case.payload(64, seed=number) for number in range(count)]
    refs = [source.produce(payload) for payload in payloads]
    for number in (*range(0, len(refs), 2), *range(1, len(refs), 2)):
        arriving = destination.consume(refs[number])
        if is_refusal(case.error(arriving, "L4")):
            case.fact("live objects at once", ["refused before there were so many"])
        else:
            case.arrived(case.ok(arriving, "L4"), payloads[number])


@check("L5")
def test_tensors_shared_by_several_live_objects(case: Case) -> None:
    family = case.draw(case.families(), "family")
    source, destination = case.actors(2)
    members = source.make(family.build, case.bench.device)
    refs = [source.produce(members.part(number)) for number in range(len(family.payloads))]
    freed = case.draw(st.integers(0, len(refs) - 1), "freed in between")
    case.arrived(case.ok(destination.consume(*refs)), *family.payloads)
    refs[freed].drop()
    for number, payload in enumerate(family.payloads):
        if number != freed:
            case.arrived(case.ok(destination.consume(refs[number])), payload)


@check("L6")
def test_a_chain_of_actors_ends(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    actors = case.actors(case.draw(st.integers(2, 5), "length"))
    ref = actors[0].produce(payload)
    for after in actors[1:]:
        held = case.ok(after.consume(ref))
        case.arrived(held, payload)
        ref = after.produce(payload if case.bench.carries.refusal_to_pass_on else held.part(0))


@check("L6")
def test_exchanges_among_actors_end(case: Case) -> None:
    count = case.draw(st.integers(2, 4), "actors")
    rounds = case.draw(st.integers(1, 3), "rounds")
    actors = case.actors(count)
    for round_number in range(rounds):
        payloads = [case.payload(128, seed=round_number * count + number) for number in range(count)]
        refs = [actor.produce(payload) for actor, payload in zip(actors, payloads, strict=True)]
        arriving = [actor.consume(refs[(number + 1) % count]) for number, actor in enumerate(actors)]
        for number, pending in enumerate(arriving):
            case.arrived(case.ok(pending), payloads[(number + 1) % count])


@check("L7")
def test_errors_of_the_producer_reach_the_consumer(case: Case) -> None:
    """Its own, and that with which extract refuses an object: both have to come out at the other end, and promptly."""
    harmless = [refusable for refusable in case.kind.refusable_payloads(case.bench.device) if not refusable.may_crash]
    refusable = case.draw(st.sampled_from(harmless), "tensors that may be refused")
    source, destination = case.actors(2)
    bystander = source.produce(case.payload())
    error = case.error(destination.consume(source.produce(ValueError("the producer failed"))))
    case.require(
        isinstance(error, ValueError) and "the producer failed" in str(error),
        "L7",
        f"the producer raised ValueError, and the consumer got {error!r}",
    )
    case.arrived(case.ok(destination.consume(bystander)), case.payload())
    error = case.error(destination.consume(source.produce(source.build(refusable, case.bench.device))))
    case.fact("refuses", [repr(refusable)] if error else [])
    if error is not None and not case.target.one_sided.value:
        case.leave_dirty()  # it may have been refused as late as by the send, and Ray have killed both actors for it


@check("L8")
def test_one_sided_delivery_needs_no_send(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source, destination = case.actors(2)
    held = source.build(payload)
    obj_id, metadata = case.described(source, held)
    received = case.ok(destination.recv(obj_id, metadata, case.comm_for_get(destination)))
    case.arrived(received, payload)


@check("L9")
def test_communicator_metadata_without_actors(case: Case) -> None:
    destination, other = case.actors(2)
    # Nobody receives what it made itself: Ray finds it in the process, and calls no transport.
    source, borrower = (case.driver, other) if case.driver_takes_part else (other, destination)
    held = source.build(case.payload())
    obj_id, metadata = case.described(source, held)
    if installed_interface().driver_puts:
        for_driver_put = case.ok(case.driver.communicator(None, destination))
        case.arrived(case.ok(destination.recv(obj_id, metadata, for_driver_put)), case.payload())
    for_get = case.ok(borrower.communicator(None, None))
    case.arrived(case.ok(borrower.recv(obj_id, metadata, for_get)), case.payload())


@check("L10")
def test_communicator_metadata_does_not_wait_for_actors(case: Case) -> None:
    source, destination = case.actors(2)
    with source.busy(), destination.busy():
        case.ok(case.driver.communicator(source, destination))


@check("L11")
def test_delivery_while_the_sources_main_thread_is_busy(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source, destination = case.actors(2)
    ref = source.produce(payload)
    case.ok(destination.consume(ref))
    with source.busy():
        case.arrived(case.ok(destination.consume(ref)), payload)


@check("L12")
def test_first_use_in_any_role(case: Case) -> None:
    payload = case.payload(case.draw(st.integers(1, 300), "bytes"))
    refusal = case.bench.carries.driver_refusal
    case.require(not refusal, "L12", f"the driver cannot share or receive an object: {refusal}")
    roles = [_produce_and_consume]
    if case.target.one_sided.value:
        roles += [_put_and_get, _driver_puts, _driver_gets, _borrower_gets]
    role = case.draw(st.sampled_from(roles), "first use")
    case.renew()
    role(case, payload)


@check("L13")
def test_the_same_reference_twice(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source, destination = case.actors(2)
    ref = source.produce(payload)
    first, second = destination.consume(ref, ref), destination.consume(ref)
    case.arrived(case.ok(first), payload, payload)
    case.arrived(case.ok(second), payload)


@check("L14")
def test_a_reference_dropped_right_after_submission(case: Case) -> None:
    payload = case.draw(case.payloads(max_bytes=64), "payload")
    source, destination = case.actors(2)
    exists = case.draw(st.booleans(), "object exists before it is passed")
    ref = source.produce(payload)
    if exists:
        case.ok(source.run(nothing))
    arriving = destination.consume(ref)
    ref.drop()
    case.arrived(case.ok(arriving), payload)


def _produced(case: Case, source: Process, payload: Payload) -> Ref:
    return source.produce(payload)


def _put_by_actor(case: Case, source: Process, payload: Payload) -> Ref:
    return case.ok(source.put(source.build(payload)))


def _put_by_driver(case: Case, source: Process, payload: Payload) -> Ref:
    return case.ok(case.driver.put(case.driver.build(payload)))


def _produce_and_consume(case: Case, payload: Payload) -> None:
    source, destination = case.actors(2)
    case.arrived(case.ok(destination.consume(source.produce(payload))), payload)


def _put_and_get(case: Case, payload: Payload) -> None:
    source, destination = case.actors(2)
    case.arrived(case.ok(destination.get(_put_by_actor(case, source, payload))), payload)


def _driver_puts(case: Case, payload: Payload) -> None:
    if not installed_interface().driver_puts:
        return _driver_gets(case, payload)
    (destination,) = case.actors(1)
    case.arrived(case.ok(destination.consume(_put_by_driver(case, destination, payload))), payload)


def _driver_gets(case: Case, payload: Payload) -> None:
    (source,) = case.actors(1)
    case.arrived(case.ok(case.driver.get(source.produce(payload))), payload)


def _borrower_gets(case: Case, payload: Payload) -> None:
    source, borrower = case.actors(2)
    case.arrived(case.ok(borrower.get(source.produce(payload))), payload)
