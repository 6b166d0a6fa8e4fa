"""Transfers that are begun in order to be aborted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rdt_conformance.engines.base import Pending

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.world import Held, Process
    from rdt_conformance.payloads import Payload

RECEIVE_ALONE = "a receive whose send does not come"
SEND_ALONE = "a send whose receive does not come"
BOTH = "a large transfer"
RECEIVE = "a large receive"
FETCH = "a large fetch"

GIVEN_UP = 3.0
"""Seconds after which Ray takes a transfer for lost in checks that wait for it; by default it is a minute."""

_MOMENT = 0.02
"""Seconds in which a call that nobody answers gets to where it blocks."""
_SIZES = (1 << 20, 8 << 20, 64 << 20)
"""Bytes of a transfer that can only be aborted while its data are on their way."""


def complete_ways(case: Case) -> list[str]:
    """The ways of a transfer that ends by itself."""
    return [RECEIVE, FETCH] if case.target.one_sided.value else [BOTH]


def attempts(
    case: Case, source: Process, destination: Process, way: str, *, tensors: int = 1, at_least: int = 0
) -> Iterator[Attempt]:
    """Transfers to be aborted: ever larger, until one is caught in flight, unless they are held up for sure.

    Args:
        case: the example that they belong to.
        source: describes a new object for each.
        destination: receives them.
        way: how they are brought to where they can be aborted.
        tensors: how many make an object.
        at_least: bytes of the smallest that may have to be caught in flight, if the budget allows as many.
    """
    sizes = [256] if way in (RECEIVE_ALONE, SEND_ALONE) else []
    if way != RECEIVE_ALONE:  # a small send may return without a receive
        within = [nbytes for nbytes in _SIZES if nbytes <= case.budget.big_bytes]
        sizes += [nbytes for nbytes in within if nbytes >= min(at_least, within[-1]) for _ in range(2)]
    for number, nbytes in enumerate(sizes):
        payload = case.payload(nbytes, tensors, seed=number)
        attempt = Attempt.of_new_object(case, source, destination, way, payload)
        yield attempt
        attempt.free()


class Attempt:
    """One transfer of an object, which may be aborted, or completed after all.

    Args:
        case: the example that it belongs to.
        source: has described the object.
        destination: receives it.
        way: which halves there are, and which of them begins.
        payload: what the object holds.
        tensors: the object.
        described: its id and metadata.
    """

    def __init__(
        self,
        case: Case,
        source: Process,
        destination: Process,
        way: str,
        payload: Payload,
        tensors: Held,
        described: tuple[str, bytes],
    ) -> None:
        self.case, self.source, self.destination, self.way = case, source, destination, way
        self.payload, self.tensors, self._described = payload, tensors, described
        self.obj_id, self.metadata = described
        ends = (None, None) if way == FETCH else (source, destination)
        self.comm = case.ok(case.driver.communicator(*ends))
        self.sides = [source, destination] if not case.target.one_sided.value else [destination]
        self.send: Pending[None] | None = None
        self._receive: Pending[Held] | None = None
        self._request: Held | None = None

    @classmethod
    def of_new_object(cls, case: Case, source: Process, destination: Process, way: str, payload: Payload) -> Attempt:
        """A transfer of tensors that nobody has shared before."""
        tensors = source.build(payload, case.bench.device)
        return cls(case, source, destination, way, payload, tensors, case.described(source, tensors))

    def sibling(self, destination: Process, way: str, *, same_object: bool, times: int = 1) -> Attempt:
        """Another transfer from the same source, if it is one of another object of so many `times` the size."""
        if same_object:
            shared = (self.payload, self.tensors, self._described)
            return Attempt(self.case, self.source, destination, way, *shared)
        payload = self.payload.inverse()
        if times > 1:
            payload = self.case.payload(min(times * payload.nbytes, _SIZES[-1]), payload.count, seed=1_000)
        return Attempt.of_new_object(self.case, self.source, destination, way, payload)

    def begin(self, buffers: Held | None = None) -> None:
        """Begin what the way says. What does not wait for its other half is not waited for either."""
        if self.way in (SEND_ALONE, BOTH):
            self._begin_send()
        if self.way == FETCH:
            self._begin_fetch(buffers)
        elif self.way != SEND_ALONE:
            self._begin_receive(buffers)

    def begin_receive(self) -> None:
        """Begin the receiver's half only, whatever the way says."""
        if self.way == FETCH:
            self._begin_fetch(None)
        else:
            self._begin_receive()

    def begin_send_blindly(self) -> None:
        """Begin the source's half, which may not get to it for a while."""
        self.send = self.source.send(self.obj_id, self.tensors, self.metadata, self.comm)

    def _begin_send(self) -> None:
        self.send = self.source.send(self.obj_id, self.tensors, self.metadata, self.comm)
        self._wait_until_begun("send_multiple_tensors", self.source, self.send)

    def _begin_receive(self, buffers: Held | None = None) -> None:
        self._receive = self.destination.recv(self.obj_id, self.metadata, self.comm, buffers)
        self._wait_until_begun("recv_multiple_tensors", self.destination, self._receive)

    def _begin_fetch(self, buffers: Held | None) -> None:
        fetching = self.destination.fetch(self.obj_id, self.metadata, self.comm, buffers)
        if self.case.target.own_fetch.value and self.case.error(fetching) is None:
            self._request = self.case.ok(fetching)
        else:
            self._receive = fetching
            self._wait_until_begun("fetch_multiple_tensors", self.destination, fetching)

    def _wait_until_begun(self, method: str, process: Process, call: Pending[Any]) -> None:
        seconds = self.case.patience.call
        if not self.case.world.history.wait_for(method, process.name, seconds, self.obj_id) and not call.done():
            raise AssertionError(f"{method} on {process.name} did not begin within {seconds:g} s")

    @property
    def main_call(self) -> Pending[Any]:
        """The receive or, if there is none, the send. A fetch that has begun is waited for from now on."""
        if self._receive is None and self._request is not None:
            self._receive = self.destination.wait(self.obj_id, self._request)
        call = self._receive or self.send
        assert call is not None, "not begun"
        return call

    def begin_to_wait(self) -> None:
        """Have the receiver wait for a fetch that has begun; any other transfer waits by itself."""
        if self._request is not None:
            self._receive = self.destination.wait(self.obj_id, self._request)
            self._wait_until_begun("wait_fetch_complete", self.destination, self._receive)

    def let_block(self) -> None:
        """Give a call that nobody answers the time to get to where it blocks, which no event tells."""
        if self.way in (RECEIVE_ALONE, SEND_ALONE):
            self.main_call.wait(_MOMENT)

    def is_under_way(self) -> bool:
        """Whether it has begun and not ended."""
        return not self.main_call.done()

    def has_failed(self) -> bool:
        """Whether the main call, which has come back, raised an error."""
        return self.case.error(self.main_call) is not None

    def abort(self, *sides: Process) -> None:
        """Abort on the given sides, or on those where Ray does."""
        aborts = [side.abort(self.obj_id, self.comm) for side in sides or self.sides]
        for abort in aborts:
            self.case.error(abort, "A9", self.case.patience.abort)

    def end(self) -> bool:
        """End each half by an abort on its own side, for the other side may be dead; whether that interrupted it."""
        under_way = self.is_under_way()
        if self._receive is not None:
            self._end_half(self._receive, self.destination, "A1")
            if not self.has_failed():
                self.case.arrived(self._tensors("A1"), self.payload, clause="A1")
        if self.send is not None:
            self._end_half(self.send, self.source, "A2")
        if self.way == RECEIVE_ALONE:
            self.abort(self.source)
        if self.way == SEND_ALONE:
            self.abort(self.destination)
        return under_way and self.has_failed()

    def _end_half(self, call: Pending[Any], side: Process, clause: str) -> None:
        self.abort(side)
        if not call.wait(self.case.patience.abort / 5):
            self.abort(side)  # the first one may have come before the transport had heard of the call
        self.case.error(call, clause, self.case.patience.abort)

    def is_interrupted(self, *, after: float = 0.0) -> bool:
        """Begin it, and end it `after` so many seconds; whether an abort could interrupt it."""
        self.begin()
        self.main_call.wait(after)
        return self.end()

    def time_of_another(self, clause: str) -> float:
        """Seconds that a new object of the same size takes, 0 if it waits for another half. `clause` if it fails."""
        if self.way not in complete_ways(self.case):
            return 0.0
        another = Attempt.of_new_object(self.case, self.source, self.destination, self.way, self.payload.inverse())
        another.begin()
        began = time.monotonic()
        another.main_call.wait(self.case.patience.call)
        seconds = time.monotonic() - began
        another.complete(clause)
        another.free()
        return seconds

    def complete(self, clause: str) -> Held:
        """Begin the other half, if that is still missing, and see the transfer to its end; `clause` if it fails."""
        if self.way == RECEIVE_ALONE:
            self._begin_send()
        if self.way == SEND_ALONE:
            self._begin_receive()
        held = self._tensors(clause)
        if self.send is not None:
            self.case.ok(self.send, clause)
        self.case.arrived(held, self.payload, clause=clause)
        return held

    def _tensors(self, clause: str) -> Held:
        held = self.case.ok(self.main_call, clause)
        if self.way == FETCH and self._request is None:
            return self.case.ok(self.destination.wait(self.obj_id, held), clause)
        return held

    def expect_exact_or_error(self, clause: str) -> None:
        """See the receive to its end, which may be an error, but not other data."""
        if self.case.error(self.main_call, clause) is not None:
            return
        if self.way == FETCH and self._request is None:  # the interface's own fetch, which has received already
            held = self.case.ok(self.main_call, clause)
            waiting = self.destination.wait(self.obj_id, held)
            if self.case.error(waiting, clause) is not None:
                return
            self.case.arrived(self.case.ok(waiting, clause), self.payload, clause=clause)
        else:
            self.case.arrived(self.case.ok(self.main_call, clause), self.payload, clause=clause)

    def end_send(self, after: float = 0.2) -> bool:
        """End a send that has not come back after so many seconds by an abort at the source; whether that did it."""
        assert self.send is not None
        if self.send.wait(after):
            return False
        self._end_half(self.send, self.source, "A2")
        return self.case.error(self.send) is not None

    def send_too_late(self) -> None:
        """Begin the send of a transfer whose receive has been aborted, and abort it as well."""
        self._begin_send()
        assert self.send is not None
        self._end_half(self.send, self.source, "A2")

    def again(self, clause: str) -> None:
        """Transfer the same object between the same actors, in each way that Ray has."""
        for way in complete_ways(self.case):
            following = self.sibling(self.destination, way, same_object=True)
            following.begin()
            following.complete(clause)

    def another(self, clause: str, *, backwards: bool = False) -> None:
        """Transfer a new object of the same size between the same actors."""
        source, destination = (self.destination, self.source) if backwards else (self.source, self.destination)
        for way in complete_ways(self.case):
            following = Attempt.of_new_object(self.case, source, destination, way, self.payload.inverse())
            following.begin()
            following.complete(clause)
            following.free()

    def free(self) -> None:
        """Free the object at its source."""
        self.case.ok(self.source.collect(self.obj_id, self.metadata, self.tensors), "G2")
        self.tensors.drop()
