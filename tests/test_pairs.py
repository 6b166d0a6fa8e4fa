"""What the two-sided transports share: whose groups are kept, and for how long, with a group as plain as can be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from ray.experimental import TensorTransportMetadata

from reference_transports._pairs import GroupLost, Half, PairTransport
from reference_transports._wire import Channel, SourceMetadata

pytestmark = pytest.mark.timeout(60)
SOON = 20.0


class Line:
    """A group that is no more than the channel; something is moved when the other side says so."""

    def __init__(self, channel: Channel, rank: int) -> None:
        self.channel = channel

    def move(self) -> None:
        """Say something, and wait for the other side to do the same."""
        try:
            self.channel.say(b"now")
            self.channel.hear()
        except ConnectionError as error:
            raise GroupLost(str(error)) from error

    def abort(self) -> None:
        self.channel.abort()

    def other_side_is_gone(self) -> bool:
        return self.channel.other_side_is_gone()

    def __del__(self) -> None:
        self.channel.close()


class Lines(PairTransport):
    """Moves nothing but a word."""

    def tensor_transport_backend(self) -> str:
        return "LINES"

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        return self._listener.metadata([], "cpu")

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        self._move(communicator_metadata, None)

    def recv_multiple_tensors(
        self, obj_id: Any, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        self._move(communicator_metadata, tensor_transport_metadata)
        return []

    def _move(self, transfer: Any, source: SourceMetadata | None) -> None:
        self._transfer(Half(transfer.transfer_id, transfer.pair, source, Line, Line.move))


class Source:
    """A transport as the source, and threads for both sides."""

    def __init__(self) -> None:
        self.transport = Lines()
        self.metadata = self.transport.extract_tensor_transport_metadata("object", [])
        self.lanes = ThreadPoolExecutor()

    def begin(self, destination: Lines, name: str) -> tuple[Any, Future[None], Future[list[Any]]]:
        """Begin a transfer, of which the pair has this name."""
        transfer = destination.get_communicator_metadata(None, None, "LINES")
        transfer.pair = name
        sent = self.lanes.submit(self.transport.send_multiple_tensors, [], self.metadata, transfer)
        return transfer, sent, self.lanes.submit(destination.recv_multiple_tensors, "object", self.metadata, transfer)

    def transfer(self, destination: Lines, name: str) -> None:
        """A whole transfer."""
        for half in self.begin(destination, name)[1:]:
            half.result(SOON)

    @property
    def pairs(self) -> list[str]:
        """Those that it keeps a group for."""
        with self.transport._changed:
            return [name for _, name in self.transport._groups]

    def collect(self) -> None:
        """As Ray does when an object is freed."""
        self.transport.garbage_collect("object", self.metadata, [])


@pytest.fixture
def source() -> Iterator[Source]:
    made = Source()
    yield made
    made.lanes.shutdown()


def dies(transport: Lines) -> None:
    """All of its connections end, as they do with a process."""
    with transport._changed:
        groups = list(transport._groups.values())
        transport._groups.clear()
    for group in groups:
        group.abort()


def test_a_group_with_the_dead_is_not_kept(source: Source) -> None:
    """It would be, with all that it takes of a GPU, until many others have come: nobody tells a transport of deaths."""
    alive, dead, other = Lines(), Lines(), Lines()
    for transport, name in ((alive, "alive"), (dead, "dead"), (other, "other")):
        source.transfer(transport, name)
    assert source.pairs == ["alive", "dead", "other"]
    source.collect()
    assert source.pairs == ["alive", "dead", "other"]
    dies(dead)
    source.collect()
    assert source.pairs == ["alive", "other"]
    dies(other)
    source.transfer(Lines(), "new")  # whoever comes may take the room
    assert source.pairs == ["alive", "new"]
    source.transfer(alive, "alive")


def test_a_destination_that_frees_nothing_forgets_dead_sources_as_well(source: Source) -> None:
    destination, second, third = Lines(), Source(), Source()
    source.transfer(destination, "one")
    second.transfer(destination, "two")
    dies(source.transport)
    third.transfer(destination, "three")
    assert [name for _, name in destination._groups] == ["two", "three"]
    second.transfer(destination, "two")
    for other in (second, third):
        other.lanes.shutdown()


def test_who_has_spoken_before_it_died_is_as_dead(source: Source) -> None:
    """Of a transfer that only one side has begun, something lies there unread."""
    dead = Lines()
    source.transfer(dead, "dead")
    (line,) = dead._groups.values()
    assert isinstance(line, Line)
    line.channel.say(b"now")
    dies(dead)
    source.collect()
    assert source.pairs == []


def test_nobody_waits_for_the_end_of_a_group(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the free that finds it dead, either: NCCL takes half a second for that."""
    dead, ended, go_on = Lines(), threading.Event(), threading.Event()
    source.transfer(dead, "dead")
    dies(dead)

    def late(line: Line) -> None:
        assert go_on.wait(SOON)
        line.channel.close()
        ended.set()

    monkeypatch.setattr(Line, "__del__", late)
    source.collect()
    assert source.pairs == [] and not ended.is_set()
    go_on.set()
    assert ended.wait(SOON)


def test_whoever_works_in_a_group_finds_out_alone(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way is not taken from under its thread."""
    dead, inside, go_on = Lines(), threading.Barrier(3), threading.Event()
    source.transfer(dead, "dead")
    moved = Line.move

    def late(line: Line) -> None:
        inside.wait(SOON)
        assert go_on.wait(SOON)
        moved(line)

    monkeypatch.setattr(Line, "move", late)
    transfer, *halves = source.begin(dead, "dead")
    inside.wait(SOON)
    dies(dead)
    source.collect()
    assert source.pairs == ["dead"]
    for transport in (source.transport, dead):
        transport.abort_transport("object", transfer)
    go_on.set()
    for half in halves:
        with suppress(ConnectionError):
            half.result(SOON)
    assert source.pairs == []
