"""What the socket transports share: connections that both ends trust, and on which any thread can abort a transfer.

The source listens; a receiver connects, and each proves to the other that it knows the secret::

    source -> receiver    challenge (16 bytes)
    receiver -> source    challenge (16), proof (32)
    source -> receiver    proof (32)

Then, for each transfer::

    receiver -> source    size (8), key: what it wants
    source -> receiver    size (8), the bytes of all tensors, one after the other

The secret travels in the object's metadata, which Ray hands to receivers only, and never over the socket: a proof is
a keyed digest of both challenges. So a process that merely finds the port can neither read nor inject. The bytes
themselves are not encrypted; that is for the network to do.

A connection carries one transfer at a time, so that an abort or a dead peer ends exactly one. When that is complete,
nothing of it is left in the stream, and the receiver keeps the connection for its next transfer from the same source:
to connect would take longer than to send a megabyte.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import TensorTransportMetadata

from reference_transports._layout import Tensor, flat_bytes, move_all, sizes

HANDSHAKE_SECONDS = 60.0
"""How long a peer may be silent before it has proved itself: as long as Ray itself waits for a transfer, by default.
After that only an abort or the peer's death ends the wait for it."""
MOST_SPARES = 64
"""How many connections a receiver keeps, apart from those in use."""

_CHALLENGE_BYTES = 16
_PROOF_BYTES = 32
_SIZE = struct.Struct("!Q")
_NOT_HERE = 2**64 - 1


@dataclass
class SourceMetadata(TensorTransportMetadata):
    """Where the tensors are to be had, besides what they are.

    Args:
        address: IP address and port at which the source listens.
        secret: what a receiver must know to be served.
    """

    address: tuple[str, int] = ("", 0)
    secret: bytes = field(default=b"", repr=False)


def source_of(metadata: TensorTransportMetadata) -> SourceMetadata:
    """The metadata, as what they must be.

    Raises:
        ValueError: they come from another transport, or do not describe tensors.
    """
    if not isinstance(metadata, SourceMetadata):
        raise ValueError(f"{type(metadata).__name__} is not the metadata of a socket transport")
    sizes(metadata.tensor_meta)
    return metadata


class _Socket(socket.socket):
    """A TCP socket that may be dropped without being closed."""

    def __init__(self, fileno: int | None = None) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno)

    def __del__(self) -> None:
        if self.fileno() >= 0:
            self.close()


class Channel:
    """One end of a connection, while it serves the one transfer called `key`.

    One thread at a time works in it and at last closes it; any other may `abort`. What goes wrong is a ConnectionError
    that says so: a ConnectionAbortedError after an abort.
    """

    def __init__(self, sock: socket.socket, key: str) -> None:
        self.key = key
        self.aborted = False
        self._sock = sock
        # Shutting down and closing exclude each other, since a closed socket's number may already be another file's.
        # Reentrant, because a garbage collection inside may run a finalizer that aborts.
        self._lock = threading.RLock()

    def abort(self) -> None:
        """End what goes on here, and whatever would follow. Returns at once; harmless at any time."""
        with self._lock, suppress(OSError):
            self.aborted = True
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back. Harmless when repeated."""
        with self._lock:
            self._sock.close()

    def say(self, message: bytes) -> None:
        """Send one short message."""
        with self._failing_clearly("the other side is gone"):
            self._sock.sendall(_SIZE.pack(len(message)) + message)

    def hear(self) -> bytes:
        """Wait for one message."""
        with self._failing_clearly("the other side is gone"):
            (size,) = _SIZE.unpack(_receive_exactly(self._sock, _SIZE.size))
            return _receive_exactly(self._sock, size)

    def peek(self) -> bytes | None:
        """The first byte of what is to be heard next; empty if nothing is, for good; None if nothing is yet."""
        try:
            return self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def other_side_is_gone(self) -> bool:
        """Whether it has closed or died, though something that it said before may still be to be heard."""
        with self._lock:
            if self._sock.fileno() < 0:
                return True
            hung_up = select.poll()
            hung_up.register(self._sock, select.POLLRDHUP)
            return bool(hung_up.poll(0))

    @contextmanager
    def _failing_clearly(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, TypeError, ValueError, OverflowError) as error:
            if self.aborted:
                raise ConnectionAbortedError(f"transfer {self.key} was aborted") from None
            raise ConnectionError(f"transfer {self.key}: {what}: {error}") from error


class Spares:
    """The connections that a receiver has no use for just now, oldest first.

    Without a lock: a finalizer might run inside it and wait for a transfer, which then waits for the lock. Instead,
    every access is a single step of the dictionary.
    """

    def __init__(self) -> None:
        self._sources: dict[socket.socket, tuple[Any, Any]] = {}

    def take(self, source: SourceMetadata) -> socket.socket | None:
        """A connection to this source, if there is one."""
        for sock, whose in list(self._sources.items()):
            if whose == (source.address, source.secret) and self._sources.pop(sock, None):
                return sock
        self._drop_the_dead()
        return None

    def add(self, source: SourceMetadata, sock: socket.socket) -> None:
        """Keep a connection on which nothing is under way."""
        self._sources[sock] = (source.address, source.secret)
        for oldest in list(self._sources)[:-MOST_SPARES]:
            self._sources.pop(oldest, None)

    def _drop_the_dead(self) -> None:
        for sock in list(self._sources):
            source = self._sources.pop(sock, None)
            if source and not _is_dead(sock):
                self._sources[sock] = source


class ReceiverEnd(Channel):
    """The end of the receiver, who connects to the source.

    Args:
        key: what it wants.
        source: who has that.
        spares: where to look for a connection, and to leave it afterwards.
    """

    def __init__(self, key: str, source: SourceMetadata, spares: Spares) -> None:
        self._source = source
        self._spares = spares
        spare = spares.take(source)
        self._is_spare = spare is not None
        # If there is no spare, not connected yet, so that connecting can be aborted as well.
        super().__init__(spare or _unconnected(), key)

    def ask(self) -> None:
        """Reach the source, and say what is wanted."""
        if self._is_spare:
            with suppress(ConnectionError):
                return self.say(self.key.encode())
            self._renew()
        with self._failing_clearly(f"cannot reach the source at {self._source.address}"):
            self._connect()
        self.say(self.key.encode())

    def receive(self, tensors: Sequence[Tensor]) -> None:
        """Fill the tensors. Nothing is written if the source offers another number of bytes."""
        buffers = [flat_bytes(tensor) for tensor in tensors]
        offered = self._offer()
        if offered == _NOT_HERE:
            raise ConnectionError(f"transfer {self.key}: the source does not hold the object (any more)")
        wanted = sum(buffer.nbytes for buffer in buffers)
        if offered != wanted:
            raise ConnectionError(f"transfer {self.key}: the source offers {offered} bytes, the metadata say {wanted}")
        with self._failing_clearly("the source is gone"):
            # MSG_WAITALL makes one call fill all of its buffers, however many packets that takes.
            move_all(lambda batch: self._sock.recvmsg_into(batch, 0, socket.MSG_WAITALL)[0], buffers)
        with self._lock:
            if not self.aborted:
                self._spares.add(self._source, _Socket(self._sock.detach()))

    def _offer(self) -> int:
        """The number of bytes that the source is about to send."""
        if self._is_spare:
            with suppress(ConnectionError):
                return self._hear_size()
            self._renew()
            self.ask()
        return self._hear_size()

    def _hear_size(self) -> int:
        with self._failing_clearly("the source is gone"):
            return _SIZE.unpack(_receive_exactly(self._sock, _SIZE.size))[0]

    def _renew(self) -> None:
        """Take a new connection, as the spare had ended: an abort of the transfer before may come that late."""
        with self._lock:
            if self.aborted:
                raise ConnectionAbortedError(f"transfer {self.key} was aborted")
            self._sock.close()
            self._sock, self._is_spare = _unconnected(), False

    def _connect(self) -> None:
        host, port = self._source.address
        self._sock.settimeout(HANDSHAKE_SECONDS)
        self._sock.connect((str(ipaddress.ip_address(host)), port))
        if self.aborted:
            raise ConnectionAbortedError  # it came before there was a connection to shut down
        _tune(self._sock)
        secret, mine = self._source.secret, secrets.token_bytes(_CHALLENGE_BYTES)
        both = _receive_exactly(self._sock, _CHALLENGE_BYTES) + mine
        self._sock.sendall(mine + _prove(secret, b"receiver", both))
        if not hmac.compare_digest(_receive_exactly(self._sock, _PROOF_BYTES), _prove(secret, b"source", both)):
            raise ConnectionRefusedError("whoever listens there does not know the secret")
        self._sock.settimeout(None)


class SourceEnd(Channel):
    """The end of the source, who accepted; its `key` is what the receiver asked for last.

    Besides the thread that hears the requests, which closes it, another may send.

    Raises:
        ConnectionError: whoever connected is no receiver of ours, and was sent away.
    """

    def __init__(self, sock: socket.socket, secret: bytes) -> None:
        super().__init__(_Socket(sock.detach()), "from a stranger")
        self._sending = threading.Lock()
        try:
            with self._failing_clearly("not a receiver of ours"):
                self._greet(secret)
        except BaseException:
            self.close()  # the stranger waits, and from Python 3.12 on only a garbage collection would close it
            raise

    def _greet(self, secret: bytes) -> None:
        self._sock.settimeout(HANDSHAKE_SECONDS)
        _tune(self._sock)
        mine = secrets.token_bytes(_CHALLENGE_BYTES)
        self._sock.sendall(mine)
        both = mine + _receive_exactly(self._sock, _CHALLENGE_BYTES)
        if not hmac.compare_digest(_receive_exactly(self._sock, _PROOF_BYTES), _prove(secret, b"receiver", both)):
            raise ConnectionRefusedError("it does not know the secret")
        self._sock.sendall(_prove(secret, b"source", both))
        self._sock.settimeout(None)

    def send(self, buffers: Sequence[memoryview]) -> None:
        """Send the bytes in the buffers, straight from there."""
        size = memoryview(_SIZE.pack(sum(buffer.nbytes for buffer in buffers)))
        try:
            with self._failing_clearly("the receiver is gone"), self._sending:
                move_all(self._sock.sendmsg, [size, *buffers])
        except BaseException:
            self.abort()  # what was sent is of no use without the rest
            raise

    def refuse(self) -> None:
        """Say that there is nothing under this key."""
        with self._failing_clearly("the receiver is gone"):
            self._sock.sendall(_SIZE.pack(_NOT_HERE))

    def receiver_is_gone(self) -> bool:
        """Whether the receiver, who waits to be served, has closed or died."""
        return _is_dead(self._sock)

    def close(self) -> None:
        """End what is being sent, and give the socket back."""
        with self._lock, suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._sending:
            super().close()


def _unconnected() -> socket.socket:
    sock = _Socket()
    # Close by reset: there is nothing left to lose, and both hosts are spared the minute in TIME_WAIT, in which
    # 28,000 connections would use up the ports.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return sock


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A host that lost its power never says goodbye: ask every 10 s, and give up after a minute of silence.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _is_dead(sock: socket.socket) -> bool:
    """Whether the other side, from which nothing is to come just now, has closed or died."""
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _prove(secret: bytes, role: bytes, challenges: bytes) -> bytes:
    return hmac.digest(secret, role + challenges, "sha256")


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = sock.recv(size - len(received), socket.MSG_WAITALL)
        if not more:
            raise EOFError("the data ended before its last byte")
        received += more
    return received
