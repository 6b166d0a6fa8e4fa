"""The socket_pull transport: what it does not share with tcp."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from socket_tools import SOON, Pair, files, pair_of, paused, raw, threads, until

from reference_transports import _wire
from reference_transports.socket_pull import SocketPullTransport

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with pair_of(SocketPullTransport) as made:
        yield made


def test_waiting_keeps_its_timeout_and_can_be_repeated(pair: Pair) -> None:
    tensors = [torch.arange(1000)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    with paused(pair.source):
        requests = [pair.destination.fetch_multiple_tensors("obj", metadata, communicator) for _ in range(64)]
        for timeout in (0, 0.05):
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                pair.destination.wait_fetch_complete(requests[0], timeout=timeout)
            assert timeout <= time.monotonic() - started < timeout + 1
    for timeout, request in zip([-1, SOON, *[float("inf")] * 62], reversed(requests), strict=True):
        received = pair.destination.wait_fetch_complete(request, timeout=timeout)
        assert torch.equal(received[0], tensors[0])
        again = pair.destination.wait_fetch_complete(request, timeout=0)
        assert len(again) == 1 and again[0] is received[0]
        assert request.obj_id == "obj"


def test_a_dropped_request_leaves_its_buffers_alone(pair: Pair) -> None:
    tensors = [torch.ones(1000)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    buffers = [torch.zeros(1000)]
    before = files()
    with paused(pair.source):
        request = pair.destination.fetch_multiple_tensors("obj", metadata, communicator, buffers)
        until(lambda: "rdt-socket-server" in threads())
        del request
        until(lambda: "rdt-socket-fetch" not in threads())
    until(lambda: files() == before and threads() == ["rdt-socket-listener"])
    assert not buffers[0].any()
    assert not list(pair.destination._fetching)


def test_a_dropped_request_stops_in_mid_transfer(pair: Pair) -> None:
    tensors = [torch.ones(256 << 20, dtype=torch.uint8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    buffers = [torch.zeros(256 << 20, dtype=torch.uint8)]
    request = pair.destination.fetch_multiple_tensors("obj", metadata, communicator, buffers)
    until(lambda: bool(buffers[0][0]))
    del request
    buffers[0].zero_()
    until(lambda: threads() == ["rdt-socket-listener"])
    assert not buffers[0].any()


def test_freeing_during_a_fetch_still_delivers_and_afterwards_is_an_error(pair: Pair) -> None:
    tensors = [torch.arange(8 << 20)]
    metadata: Any = pair.extract("obj", tensors)
    expected = raw(tensors[0])
    slow = _wire.ReceiverEnd("obj", metadata, _wire.Spares())
    slow.ask()
    assert _wire._receive_exactly(slow._sock, 8) == len(expected).to_bytes(8, "big")
    pair.free("obj", metadata, tensors)
    tensors.clear()
    gc.collect()
    assert _wire._receive_exactly(slow._sock, len(expected)) == expected
    slow.close()
    with pytest.raises(ConnectionError, match="does not hold"):
        pair.recv("obj", metadata, pair.communicator()).result(SOON)


def test_a_failed_fetch_says_so_to_every_wait(pair: Pair) -> None:
    metadata, communicator = pair.extract("obj", [torch.arange(3)]), pair.communicator()
    good = pair.destination.fetch_multiple_tensors("obj", metadata, communicator)
    bad = pair.destination.fetch_multiple_tensors("unknown", metadata, communicator)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="does not hold"):
            pair.destination.wait_fetch_complete(bad, timeout=SOON)
    assert torch.equal(pair.destination.wait_fetch_complete(good, timeout=SOON)[0], torch.arange(3))
