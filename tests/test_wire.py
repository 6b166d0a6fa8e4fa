"""The connections of the socket transports: who may use them, and how long they last."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from socket_tools import SOON, Pair, files, pair_of, paused, threads, until

from reference_transports import _wire
from reference_transports.socket_pull import SocketPullTransport

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with pair_of(SocketPullTransport) as made:
        yield made


def everything_from(sock: socket.socket) -> bytes:
    """What comes until the other side closes, politely or not."""
    sock.settimeout(SOON)
    received = b""
    with suppress(ConnectionResetError):
        while more := sock.recv(1000):
            received += more
    return received


def test_a_stranger_gets_nothing_and_disturbs_nobody(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata: Any = pair.extract("obj", tensors)
    pair.transfer("obj", tensors)
    before = files()
    with socket.create_connection(metadata.address) as silent, socket.create_connection(metadata.address) as rude:
        rude.sendall(b"GET / HTTP/1.1\r\n" * 5000)
        assert len(everything_from(rude)) <= 16  # the challenge
        assert torch.equal(pair.transfer("obj", tensors)[0], tensors[0])
        assert silent.fileno() >= 0
    until(lambda: files() == before)


def test_a_stranger_is_sent_away_at_once_whoever_keeps_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as stranger:
        stranger.sendall(bytes(16 + 32))
        with pytest.raises(ConnectionError, match="does not know the secret") as kept:
            _wire.SourceEnd(server.accept()[0], b"secret")
        assert len(everything_from(stranger)) == 16
        del kept


def test_what_was_overheard_proves_nothing(pair: Pair) -> None:
    metadata: Any = pair.extract("obj", [torch.arange(8)])
    with socket.create_server(("127.0.0.1", 0)) as impostor, socket.create_connection(metadata.address) as replay:

        def relay() -> bytes:
            with impostor.accept()[0] as sock:
                sock.sendall(bytes(16))  # a challenge other than the source's
                return sock.recv(16 + 32, socket.MSG_WAITALL)

        overheard = pair.lanes.submit(relay)
        communicator = pair.communicator()
        failed = pair.recv("obj", replace(metadata, address=impostor.getsockname()), communicator)
        replay.sendall(overheard.result(SOON))
        assert len(everything_from(replay)) == 16
        assert isinstance(failed.exception(SOON), ConnectionError)


def test_an_impostor_is_found_out(pair: Pair) -> None:
    good: Any = pair.extract("obj", [torch.arange(8)])
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def answer() -> None:
            with impostor.accept()[0] as sock:
                sock.sendall(bytes(16))
                sock.recv(1000)
                sock.sendall(bytes(32 + 8 + 64))

        answering = pair.lanes.submit(answer)
        with pytest.raises(ConnectionError, match="secret"):
            pair.recv("obj", replace(good, address=impostor.getsockname()), pair.communicator()).result(SOON)
        answering.result(SOON)


def test_a_connection_is_used_again_and_again(pair: Pair) -> None:
    metadata: Any = pair.extract("obj", [torch.arange(8)])
    for _ in range(20):
        pair.transfer("obj", [torch.arange(8)], metadata=metadata)
    assert threads().count("rdt-socket-server") == 1


def test_a_connection_that_has_ended_is_replaced(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    metadata: Any = pair.extract("obj", tensors)
    for _ in range(20):
        pair.transfer("obj", tensors, metadata=metadata)
        for end in list(pair.source._listener._ends):
            end.abort()
    assert torch.equal(pair.transfer("obj", tensors, metadata=metadata)[0], tensors[0])


def test_connections_to_sources_that_are_gone_are_not_kept(pair: Pair) -> None:
    tensors = [torch.arange(8)]
    pair.transfer("obj", tensors)
    before = files()
    for _ in range(20):
        pair.source = SocketPullTransport()
        pair.transfer("obj", tensors)
    until(lambda: files() <= before + 2)


def test_a_receiver_keeps_a_limited_number_of_connections(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "MOST_SPARES", 2)
    tensors = [torch.arange(8)]
    metadata, communicator = pair.extract("obj", tensors), pair.communicator()
    with paused(pair.source):
        under_way = [pair.recv("obj", metadata, communicator) for _ in range(5)]
        until(lambda: threads().count("rdt-socket-server") == 5)
    assert all(torch.equal(each.result(SOON)[0], tensors[0]) for each in under_way)
    until(lambda: threads().count("rdt-socket-server") == 2)


def test_connecting_can_be_aborted(pair: Pair) -> None:
    """A full backlog never answers: the receiver waits in connect."""
    metadata: Any = pair.extract("obj", [torch.arange(8)])
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        knocking = [socket.socket() for _ in range(4)]
        for sock in knocking:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        communicator = pair.communicator()
        blocked = pair.recv("obj", replace(metadata, address=full.getsockname()), communicator)
        with pytest.raises(TimeoutError):
            blocked.result(0.2)
        pair.destination.abort_transport("obj", communicator)
        assert isinstance(blocked.exception(1), ConnectionAbortedError)
        for sock in knocking:
            sock.close()
