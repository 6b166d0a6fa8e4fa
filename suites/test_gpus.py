"""INTEGRITY and FAULTS of GPU memory: kernels that still run, and which GPUs source and destination have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rdt_conformance.checks import Case, check
from rdt_conformance.checks.moves import transfer
from rdt_conformance.checks.refusals import exact_or_refused, unless_buffers_are_refused
from rdt_conformance.engines.base import Spread
from rdt_conformance.engines.reference.worker import Settings
from rdt_conformance.engines.world import Held
from rdt_conformance.payloads import Payload

NBYTES = 1 << 20
CYCLES = 1 << 30
"""Clock cycles of a GPU for which a kernel keeps a stream waiting: half a second, long after a small object has arrived
if nobody waits for its contents."""
DEFAULT, OWN = "the default stream", "a stream that the user has made current"
GIVEN_UP = 20.0
"""Seconds after which Ray takes a transfer for lost: the first one between two GPUs may build a communicator."""


@check("D9", "D8")
def test_contents_that_a_kernel_still_writes_arrive(case: Case) -> None:
    """The kernel is held up by another one on its stream. What arrives is read at once, on streams of the reader's."""
    case.send_from("cuda")
    payload = case.payload(NBYTES, count=3)
    stream = case.draw(st.sampled_from((DEFAULT, OWN)), "written on")
    source, destination = case.actors(2)
    ref = source.produce(_WrittenLate(payload, on_own_stream=stream == OWN))
    _expect_in_time(case, case.ok(destination.consume(ref)).part(0), payload, stream)
    if case.target.one_sided.value:
        other = payload.inverse()
        put = case.ok(source.put(source.build(_WrittenLate(other, on_own_stream=stream == OWN))))
        _expect_in_time(case, case.ok(destination.get(put)).part(0), other, stream)
    source.make(_back_to_default_stream).drop()


@check("D9", "D8")
def test_contents_that_a_kernel_still_writes_arrive_by_single_calls(case: Case) -> None:
    """As before, but nothing of Ray's takes time in between."""
    case.send_from("cuda")
    payload = case.payload(NBYTES, count=3)
    source, destination = case.actors(2)
    tensors = source.build(_WrittenLate(payload, on_own_stream=False))
    obj_id, metadata = case.described(source, tensors)
    _expect_in_time(case, transfer(case, source, destination, obj_id, tensors, metadata), payload, DEFAULT)


@check("D9", "D8", situational=("D9",))
def test_what_arrives_is_not_written_over_by_an_older_kernel(case: Case) -> None:
    """The kernel writes, late, to memory that the destination has given up since, and that torch hands out again."""
    case.send_from("cuda")
    payload = case.payload(case.draw(st.sampled_from((500, NBYTES)), "bytes"), 3)
    source, destination = case.actors(2)
    tensors = source.build(payload, "cuda")
    obj_id, metadata = case.described(source, tensors)
    destination.make(_give_up_and_write_later, payload).drop()
    received = transfer(case, source, destination, obj_id, tensors, metadata, clause="D8")
    _expect_unharmed(case, received, payload, "D8", "memory that the receiver had given up")


@check("B7")
def test_what_arrives_in_buffers_is_not_written_over_by_an_older_kernel(case: Case) -> None:
    """As where buffers are made by torch.zeros right before a get."""
    case.send_from("cuda")
    payload = case.payload(case.draw(st.sampled_from((500, NBYTES)), "bytes"), 3)
    source, destination = case.actors(2)
    tensors = source.build(payload, "cuda")
    obj_id, metadata = case.described(source, tensors)
    given = destination.build(_WrittenLate(payload.inverse(), on_own_stream=False))
    receiving = destination.recv(obj_id, metadata, case.comm_for_get(destination), given)
    received = unless_buffers_are_refused(case, receiving, "B7")
    if received is not None:
        _expect_unharmed(case, received, payload, "B7", "the target buffers")


@check("D9", "D1", situational=("D9",))
def test_tensors_on_any_gpu_of_a_process_arrive(case: Case) -> None:
    """Actors have one GPU each, as Ray gives it to them. Where all of them are one process, that sees all GPUs."""
    case.send_from("cuda")
    source, destination = case.actors(2)
    devices = source.make(_devices).apply(list)
    for device in devices:
        payload = case.payload(5_000, 2)
        received = case.ok(destination.consume(source.produce(payload, device)), "D1").part(0)
        case.arrived(received, payload, clause="D1")
    case.fact("tensors on", devices)


@check("R9")
def test_gpu_memory_arrives_exactly_or_not_at_all_wherever_the_gpus_are(case: Case) -> None:
    case.send_from("cuda")
    case.leave_dirty()
    places = {"within one GPU": Spread.NOTHING}
    if case.bench.gpus > 1:
        places["between two GPUs"] = Spread.GPUS
    else:
        case.fact("between two GPUs", "not tried: there is one")
    payload = case.payload(5_000, 2)
    for where, spread in places.items():
        case.renew(Settings(fetch_fail_timeout=GIVEN_UP), used=True, spread=spread)
        source, destination = case.world.actors(2)
        receiving = destination.consume(source.produce(payload))
        case.fact(where, exact_or_refused(case, receiving, payload, "R9", where, GIVEN_UP))


@dataclass(frozen=True)
class _WrittenLate:
    """Builds tensors whose contents a kernel is still to write, as a model's last layer would."""

    payload: Payload
    on_own_stream: bool
    """Written on a stream that is made the thread's current one, not on the default stream."""

    @property
    def count(self) -> int:
        return self.payload.count

    @property
    def nbytes(self) -> int:
        return self.payload.nbytes

    def differences(self, received: Sequence[Any]) -> list[str]:
        return self.payload.differences(received)

    def build(self, device: str = "cpu") -> list[Any]:
        """Until the kernel has run they hold the inverse."""
        import torch

        contents, tensors = self.payload.build(device), self.payload.inverse().build(device)
        if self.on_own_stream:
            torch.cuda.set_stream(torch.cuda.Stream())
        torch.cuda._sleep(CYCLES)
        for tensor, content in zip(tensors, contents, strict=True):
            tensor.copy_(content)
            content.record_stream(torch.cuda.current_stream())  # it is let go of before it has been read
        return tensors


def _give_up_and_write_later(payload: Payload) -> None:
    """Leaves torch's allocator nothing else to hand out but what a waiting kernel of the default stream writes to."""
    import torch

    torch.cuda._sleep(1)
    torch.zeros(1, device="cuda")  # the kernels are there now: to load one waits for those that run
    torch.cuda.empty_cache()
    given_up = [tensor for _ in range(4) for tensor in payload.inverse().build("cuda")]
    given_up.append(torch.empty(16 * payload.nbytes, dtype=torch.uint8, device="cuda"))
    torch.cuda._sleep(CYCLES)
    for tensor in given_up:
        tensor.zero_()


def _back_to_default_stream() -> None:
    import torch

    torch.cuda.synchronize()
    torch.cuda.set_stream(torch.cuda.default_stream())


def _devices() -> list[str]:
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def _expect_in_time(case: Case, received: Held, payload: Payload, stream: str) -> None:
    """What a reader sees of tensors that have just been returned: on its current stream, and on a new one.

    What is there later, when the reader's GPU has come to rest, was described in time, and returned too early. Where
    source and reader are one process, that brings the source's kernel to its end too, and tells nothing.
    """
    tells = case.bench.engine != "local"
    copies = received.derive(_copied_on_two_streams)
    seen, elsewhere, later = (copies.part(index).differences(payload) for index in range(3))
    at_once = "D8" if tells and not later else "D9"
    sides = ((seen, at_once, "on the current stream"), (elsewhere, "D8", "on another stream"))
    for differences, clause, where in sides:
        case.require(
            not differences,
            clause,
            lambda found=differences, where=where: (
                f"a kernel on {stream} was still to write the tensors when they were described, and what a reader "
                f"copied {where} right after it had them is not what that wrote: {found[0]}"
                + ("" if later or not tells else "; it was, once the reader's GPU had come to rest")
            ),
        )


def _expect_unharmed(case: Case, received: Held, payload: Payload, clause: str, what: str) -> None:
    """What a reader sees of tensors that have just been returned, and when all kernels have run."""
    copies = received.derive(_copied_on_two_streams)
    for index, when in enumerate(("right after it had them", "on another stream", "when its GPU had come to rest")):
        differences = copies.part(index).differences(payload)
        case.require(
            not differences,
            clause,
            lambda found=differences, when=when: (
                f"a kernel was still to write to {what} when the transfer began, and what a reader copied {when} is "
                f"not what was sent: {found[0]}"
            ),
        )


def _copied_on_two_streams(tensors: list[Any]) -> list[list[Any]]:
    """Copies made on the current stream, before that on a new one that is told to wait for nothing, and at rest."""
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        elsewhere = [tensor.cpu() for tensor in tensors]
    at_once = [tensor.cpu() for tensor in tensors]
    torch.cuda.synchronize()
    return [at_once, elsewhere, [tensor.cpu() for tensor in tensors]]
