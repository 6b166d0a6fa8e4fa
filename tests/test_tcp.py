"""The tcp transport: what it does not share with socket_pull."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from socket_tools import SOON, Pair, files, pair_of, until

from reference_transports import _wire
from reference_transports.tcp import TcpTransport

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with pair_of(TcpTransport) as made:
        yield made


def test_an_abort_or_a_dead_receiver_ends_a_send(pair: Pair) -> None:
    tensors = [torch.zeros(64 << 20, dtype=torch.uint8)]
    metadata: Any = pair.extract("obj", tensors)
    waiting, stuck, left = (pair.communicator() for _ in range(3))
    sends = {c.transfer_id: pair.send(tensors, metadata, c) for c in (waiting, stuck, left)}
    idle = [_wire.ReceiverEnd(c.transfer_id, metadata, _wire.Spares()) for c in (stuck, left)]
    for end in idle:
        end.ask()
        _wire._receive_exactly(end._sock, 1000)  # and no more
    idle[1].close()
    with pytest.raises(ConnectionError, match="the receiver is gone"):
        sends[left.transfer_id].result(SOON)
    for communicator in (waiting, stuck):
        assert not sends[communicator.transfer_id].done()
        pair.source.abort_transport("obj", communicator)
        with pytest.raises(ConnectionAbortedError):
            sends[communicator.transfer_id].result(1)
    assert torch.equal(pair.transfer("obj", tensors, metadata=metadata)[0], tensors[0])


def test_an_abort_before_the_start_fails_that_transfer_only(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    for transport in (pair.source, pair.destination):
        transport.abort_transport("obj", communicator)
    for future in (pair.send(tensors, metadata, communicator), pair.recv("obj", metadata, communicator)):
        with pytest.raises(ConnectionAbortedError):
            future.result(SOON)
    assert torch.equal(pair.transfer("obj", tensors, metadata=metadata)[0], tensors[0])


def test_a_receiver_that_left_before_the_send_is_forgotten(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    before = files()
    blocked = pair.recv("obj", metadata, communicator)
    until(lambda: bool(pair.source._asking))
    pair.destination.abort_transport("obj", communicator)
    assert isinstance(blocked.exception(SOON), ConnectionAbortedError)
    until(lambda: not pair.source._asking and files() == before)


@pytest.mark.parametrize("send_first", [True, False])
def test_an_abort_ends_one_transfer_of_a_connection(pair: Pair, send_first: bool) -> None:
    """Also if it comes late: when the connection serves the next transfer, or waits for one."""
    tensors = [torch.arange(8)]
    metadata = pair.extract("obj", tensors)
    pair.transfer("obj", tensors, metadata=metadata)
    for _ in range(20):
        earlier, communicator = pair.communicators[-1], pair.communicator()
        if send_first:
            sent = pair.send(tensors, metadata, communicator)
            pair.source.abort_transport("obj", earlier)
            received = pair.recv("obj", metadata, communicator)
        else:
            received = pair.recv("obj", metadata, communicator)
            until(lambda: bool(pair.source._asking))
            pair.source.abort_transport("obj", earlier)
            sent = pair.send(tensors, metadata, communicator)
        sent.result(SOON)
        assert torch.equal(received.result(SOON)[0], tensors[0])


def test_a_failed_send_keeps_no_tensors(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    watched = weakref.ref(tensors[0])
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    sent = pair.send(tensors, metadata, communicator)
    pair.source.abort_transport("obj", communicator)
    gc.disable()
    try:
        assert sent.exception(SOON)
        del sent, tensors
        until(lambda: watched() is None)
    finally:
        gc.enable()
