"""STATIC: the class itself: what it answers, which calls it takes, how it travels and what building it costs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from rdt_conformance import pickling
from rdt_conformance.checks import Case, check
from rdt_conformance.checks.verdicts import broken
from rdt_conformance.elsewhere import BUILD_SECONDS, LOAD_SECONDS, Elsewhere, build_elsewhere
from rdt_conformance.engines.base import Pending
from rdt_conformance.history import describe_error
from rdt_conformance.ray_interface import Call, calls, installed_interface, refusal

MOST_METADATA = 100 << 10
"""Bytes. What is larger, Ray does not put into a task's reply but into the object store."""


@check("S5", "S1", "S9", sends=False, situational=("S9",))
def test_the_class_is_built_in_another_process(case: Case) -> None:
    """By Ray's own functions, which hold a lock meanwhile, and while this process has an instance of its own.

    A transport that calls into Ray then is built in an actor instead, where Ray itself opens this and that.
    """
    case.ok(case.driver.ask("can_abort_transport"), "S1")
    elsewhere = build_elsewhere(case.target)
    if not elsewhere.started:
        raise case.cannot(f"no other process could be started to build the class in: {elsewhere.last_words}")
    if not elsewhere.loaded:
        raise broken("S5", _why_not_loaded(elsewhere), elsewhere.last_words)
    case.fact("class travels", elsewhere.loaded)
    if elsewhere.needs_ray:
        case.ok(case.actors(1)[0].ask("can_abort_transport"), "S1")
        return
    if not elsewhere.built:
        raise broken("S1", _why_not_built(elsewhere), elsewhere.last_words)
    opened = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in elsewhere.opened.items())
    case.advise(not opened, "S9", f"building the transport, without any object, opened {opened}")


@check("S2")
def test_the_kind_of_transport_never_changes(case: Case) -> None:
    payload = case.draw(case.payloads(), "payload")
    source, destination = case.actors(2)
    _expect_kind(case, "before the first object")
    ref = source.produce(payload)
    case.ok(destination.consume(ref), "L1").drop()
    _expect_kind(case, "after a transfer")
    ref.drop()
    case.world.come_to_rest(case.patience.call)
    _expect_kind(case, "after the object was freed")


@check("S3", sends=False)
def test_the_transport_tells_its_name(case: Case) -> None:
    method = inspect.getattr_static(case.target.transport_class, "tensor_transport_backend")
    case.require(
        not isinstance(method, property),
        "S3",
        "tensor_transport_backend is a property, so that calling it, as the interface says, fails",
    )
    for process in (*case.actors(1), case.driver):
        name = case.ok(process.ask("tensor_transport_backend"))
        case.require(
            isinstance(name, str) and name.upper() == case.target.name.value.upper(),
            "S3",
            f"tensor_transport_backend() returned {name!r}, and the transport is registered as "
            f"{case.target.name.value!r} [{case.target.name.learnt}]",
        )


@check("S4", sends=False)
def test_methods_accept_the_calls_of_ray(case: Case) -> None:
    for call in calls(installed_interface(), case.target.capabilities):
        why = _answer(case, case.driver.run(_refusal, case.world.transport, call, what="the constructor"), "S4")
        case.require(not why, "S4", f"Ray calls {call}, and {call.method}{why}")


@check("S6")
def test_metadata_travel(case: Case) -> None:
    payload = case.draw(case.payloads(min_tensors=0), "payload")
    source, destination = case.actors(2)
    extracting = source.extract(case.world.new_object_id(), source.build(payload, case.bench.device))
    case.unless(not payload.count and case.error(extracting) is not None)  # that is for M4 to say
    metadata = case.ok(extracting)
    _expect_type(case, metadata, TensorTransportMetadata, "extract_tensor_transport_metadata")
    pairs = [(source, destination)]
    if case.target.one_sided.value:
        pairs += [(None, destination), (None, None)] if installed_interface().driver_puts else [(None, None)]
    for pair in pairs:
        communicator = case.ok(case.driver.communicator(*pair))
        _expect_type(case, communicator, CommunicatorMetadata, "get_communicator_metadata")


@check("S6")
def test_exceptions_travel(case: Case) -> None:
    """Whatever the transport raises here, it has to arrive with its type."""
    provoke = case.draw(st.sampled_from(_provocations(case)), "provocation")
    error = provoke(case)
    if error is None:
        return
    obstacle = _obstacle(error)
    case.require(not obstacle, "S6", f"the transport raised {describe_error(error)}, and it {obstacle}")


@check("S7")
def test_metadata_of_a_thousand_tensors_are_small(case: Case) -> None:
    (source,) = case.actors(1)
    tensors = source.build(case.payload(1_000, count=1_000), case.bench.device)
    metadata = case.ok(source.extract(case.world.new_object_id(), tensors), "D2")
    case.fact("metadata of 1,000 tensors", f"{len(metadata):,} bytes")
    case.require(
        len(metadata) <= MOST_METADATA,
        "S7",
        f"the metadata of 1,000 tensors of one byte each have {len(metadata):,} bytes when pickled",
    )


@check("S8", sends=False)
def test_whether_an_actor_has_the_transport(case: Case) -> None:
    """Asked before anybody has used the transport, and whatever the actor is busy with."""
    case.renew()
    (actor,) = case.actors(1)
    with actor.busy():
        for _ in range(2):
            answer = case.ok(case.driver.has_transport(actor))
            case.require(
                isinstance(answer, bool), "S8", f"actor_has_tensor_transport returned {answer!r}, which is no bool"
            )


def _why_not_loaded(elsewhere: Elsewhere) -> str:
    if not elsewhere.refused:
        return f"loading the class in another process did not end within {LOAD_SECONDS} s, or it ended the process"
    ways = "; ".join(f"{way}: {why}" for way, why in elsewhere.refused.items())
    return f"the class could not be sent to another process ({ways})"


def _why_not_built(elsewhere: Elsewhere) -> str:
    if elsewhere.build_error:
        return f"registering and building the class in another process raised {elsewhere.build_error}"
    return f"building the class in another process did not end within {BUILD_SECONDS} s, or it ended the process"


def _expect_kind(case: Case, when: str) -> None:
    """What was answered when the target was looked at is what has to be answered always, and everywhere."""
    for process in (*case.actors(2), case.driver):
        answers = {
            "is_one_sided": (process.run(_is_one_sided, case.world.transport), case.target.one_sided.value),
            "can_abort_transport": (process.ask("can_abort_transport"), case.target.can_abort.value),
        }
        for method, (pending, first) in answers.items():
            answer = _answer(case, pending, "S2")
            case.require(
                answer is first, "S2", f"{method}() returned {first!r} at first, and {answer!r} on {process} {when}"
            )


def _is_one_sided(worker: Any, transport: str) -> bool:
    return worker.registry.find(transport).transport_class.is_one_sided()


def _answer(case: Case, pending: Pending[Any], clause: str) -> Any:
    """What came back from code of the author's that the harness did not call as one of Ray's calls."""
    error = case.error(pending, clause)
    case.require(error is None, clause, f"{pending.what} raised {error!r}")
    return pending.result()


def _refusal(worker: Any, transport: str, call: Call) -> str:
    return refusal(getattr(worker.registry.instance(transport), call.method), call)


def _expect_type(case: Case, pickled: bytes, base: type, method: str) -> None:
    try:
        found = case.world.loads(pickled)
    except Exception as error:
        raise broken("S6", f"what {method} returned cannot be unpickled: {describe_error(error)}") from error
    case.require(
        isinstance(found, base),
        "S6",
        f"{method} returned a {type(found).__name__}, which is no subclass of {base.__name__}",
    )


def _provocations(case: Case) -> list[Callable[[Case], Exception | None]]:
    found: list[Callable[[Case], Exception | None]] = [_refused_tensors]
    if case.target.one_sided.value:
        found.append(_foreign_metadata)
        if case.target.takes_buffers:
            found.append(_buffers_that_do_not_fit)
    return found


def _refused_tensors(case: Case) -> Exception | None:
    (source,) = case.actors(1)
    tame = [each for each in case.kind.refusable_payloads(case.bench.device) if not each.may_crash]
    tensors = source.build(case.draw(st.sampled_from(tame), "tensors that may be refused"), case.bench.device)
    return case.error(source.extract(case.world.new_object_id(), tensors), "M8")


def _foreign_metadata(case: Case) -> Exception | None:
    (destination,) = case.actors(1)
    metadata = pickling.dumps(TensorTransportMetadata([], None))
    comm = case.comm_for_get(destination)
    return case.error(destination.recv(case.world.new_object_id(), metadata, comm), "R6")


def _buffers_that_do_not_fit(case: Case) -> Exception | None:
    source, destination = case.actors(2)
    obj_id, metadata = case.described(source, source.build(case.payload(100), case.bench.device))
    buffers = destination.make(case.kind.buffers, case.payload(50), case.bench.device)
    return case.error(destination.recv(obj_id, metadata, case.comm_for_get(destination), buffers), "B6")


def _obstacle(error: Exception) -> str:
    """Why an exception would not arrive as what it is, completing the sentence "it …"; empty if it would."""
    try:
        pickled = pickling.dumps(error)
    except Exception as obstacle:
        return f"cannot be pickled: {describe_error(obstacle)}"
    try:
        arrived = pickling.loads(pickled)
    except Exception as obstacle:
        return f"can be pickled but not unpickled: {describe_error(obstacle)}"
    there, here = type(arrived), type(error)
    if (there.__module__, there.__qualname__) != (here.__module__, here.__qualname__):
        return f"arrives as a {there.__name__}"
    return ""
