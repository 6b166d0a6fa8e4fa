"""What the socket transports share: one connection per transfer, which both ends trust and any thread can abort.

The source listens; a receiver connects and says what it wants::

    receiver -> source    nonce (16 bytes), proof (32), length of the key (2), key
    source -> receiver    proof (32): the source knows the secret too
    source -> receiver    size (8), the bytes of all tensors, one after the other

The secret travels in the object's metadata, which Ray hands to receivers only, and never over the socket: a proof is
a keyed digest of the nonce and the key. So a process that merely finds the port can neither read nor inject. The bytes
themselves are not encrypted; that is for the network to do.

A connection of its own for each transfer costs a round trip. It buys that an abort or a dead peer ends exactly one
transfer, and leaves nothing in a stream that could be taken for the next.
"""

from __future__ import annotations

import hmac
import ipaddress
import itertools
import secrets
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ray.experimental import TensorTransportManager, TensorTransportMetadata

from reference_transports._layout import Tensor, flat_bytes, move_all, sizes

HANDSHAKE_SECONDS = 60.0
"""How long a peer may be silent before it has proved itself: as long as Ray itself waits for a transfer, by default.
After that only an abort or the peer's death ends the wait for it."""

_REQUEST = struct.Struct("!16s32sH")
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


class Channel:
    """One end of a connection, for the one transfer called `key`.

    One thread at a time works in it and at last closes it; any other may `abort`. What goes wrong is a ConnectionError
    that says so: a ConnectionAbortedError after an abort.
    """

    def __init__(self, sock: socket.socket, key: str) -> None:
        self.key = key
        self._sock = sock
        self._aborted = False
        # Shutting down and closing exclude each other, since a closed socket's number may already be another file's.
        # Reentrant, because a garbage collection inside may run a finalizer that aborts.
        self._lock = threading.RLock()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that lost its power never says goodbye: ask every 10 s, and give up after a minute of silence.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        weakref.finalize(self, sock.close)

    def abort(self) -> None:
        """End what goes on here, and whatever would follow. Returns at once; harmless at any time."""
        with self._lock, suppress(OSError):
            self._aborted = True
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

    @contextmanager
    def _failing_clearly(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, TypeError, ValueError, OverflowError) as error:
            if self._aborted:
                raise ConnectionAbortedError(f"transfer {self.key} was aborted") from None
            raise ConnectionError(f"transfer {self.key}: {what}: {error}") from error


class ReceiverEnd(Channel):
    """The end of the receiver, who connects to the source."""

    def __init__(self, key: str, source: SourceMetadata) -> None:
        self._source = source
        # Not connected yet, so that connecting can be aborted as well.
        super().__init__(socket.socket(socket.AF_INET, socket.SOCK_STREAM), key)
        # Close by reset: there is nothing left to lose, and both hosts are spared the minute in TIME_WAIT, in which
        # 28,000 transfers would use up the ports.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def receive(self, tensors: Sequence[Tensor]) -> None:
        """Connect, and fill the tensors. Nothing is written if the source offers another number of bytes."""
        self.connect()
        with self._failing_clearly("the source is gone"):
            (offered,) = _SIZE.unpack(_receive_exactly(self._sock, _SIZE.size))
        if offered == _NOT_HERE:
            raise ConnectionError(f"transfer {self.key}: the source does not hold the object (any more)")
        wanted = sum(tensor.nbytes for tensor in tensors)
        if offered != wanted:
            raise ConnectionError(f"transfer {self.key}: the source offers {offered} bytes, the metadata say {wanted}")
        with self._failing_clearly("the source is gone"):
            _receive_into(self._sock, map(flat_bytes, tensors))

    def connect(self) -> None:
        """Reach the source and prove that each knows the secret."""
        with self._failing_clearly(f"cannot reach the source at {self._source.address}"):
            self._connect()

    def _connect(self) -> None:
        host, port = self._source.address
        secret, nonce, key = self._source.secret, secrets.token_bytes(16), self.key.encode()
        self._sock.settimeout(HANDSHAKE_SECONDS)
        self._sock.connect((str(ipaddress.ip_address(host)), port))
        if self._aborted:
            raise ConnectionAbortedError  # it came before there was a connection to shut down
        self._sock.sendall(_REQUEST.pack(nonce, _prove(secret, b"receiver", nonce, key), len(key)) + key)
        if not hmac.compare_digest(_receive_exactly(self._sock, 32), _prove(secret, b"source", nonce, key)):
            raise ConnectionRefusedError("whoever listens there does not know the secret")
        self._sock.settimeout(None)


class SourceEnd(Channel):
    """The end of the source, who accepted; its `key` is what the receiver asked for.

    Raises:
        ConnectionError: whoever connected is no receiver of ours, and was sent away.
    """

    def __init__(self, sock: socket.socket, secret: bytes) -> None:
        super().__init__(sock, "from a stranger")
        try:
            with self._failing_clearly("not a receiver of ours"):
                self._greet(secret)
        except ConnectionError:
            self.close()
            raise

    def _greet(self, secret: bytes) -> None:
        self._sock.settimeout(HANDSHAKE_SECONDS)
        nonce, proof, length = _REQUEST.unpack(_receive_exactly(self._sock, _REQUEST.size))
        key = _receive_exactly(self._sock, length)
        if not hmac.compare_digest(proof, _prove(secret, b"receiver", nonce, key)):
            raise ConnectionRefusedError("it does not know the secret")
        self.key = key.decode()
        self._sock.sendall(_prove(secret, b"source", nonce, key))
        self._sock.settimeout(None)

    def send(self, tensors: Sequence[Tensor]) -> None:
        """Send the bytes of the tensors, straight from their memory."""
        size = memoryview(_SIZE.pack(sum(tensor.nbytes for tensor in tensors)))
        with self._failing_clearly("the receiver is gone"):
            move_all(self._sock.sendmsg, itertools.chain([size], map(flat_bytes, tensors)))

    def refuse(self) -> None:
        """Say that there is nothing under this key."""
        with self._failing_clearly("the receiver is gone"):
            self._sock.sendall(_SIZE.pack(_NOT_HERE))

    def receiver_is_gone(self) -> bool:
        """Whether the receiver, who has nothing more to say, has closed or died."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


class Listener:
    """Accepts receivers on one thread, and hands each that knows the secret to `serve` on a thread of its own.

    Args:
        transport: held weakly; when it is dropped, the listener closes.
        serve: a method of the transport, called with the source's end of the connection, which is then its to close.
    """

    def __init__(self, transport: TensorTransportManager, serve: Callable[[SourceEnd], None]) -> None:
        self.secret = secrets.token_bytes(32)
        self._serve = weakref.WeakMethod(serve)
        self._closed = False
        self._server = socket.create_server((own_address(), 0), backlog=socket.SOMAXCONN)
        self.address: tuple[str, int] = self._server.getsockname()
        threading.Thread(target=self._accept, name="rdt-socket-listener", daemon=True).start()
        weakref.finalize(transport, self.close)

    def close(self) -> None:
        """Stop accepting. Takes no lock, because it runs as a finalizer, on any thread at any time."""
        self._closed = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes the socket

    def _accept(self) -> None:
        with self._server:
            while not self._closed:
                try:
                    args = [self._server.accept()[0]]
                    threading.Thread(target=self._greet, args=args, name="rdt-socket-server", daemon=True).start()
                except (OSError, RuntimeError):
                    if not self._closed:
                        time.sleep(0.05)  # out of files or of threads, and nothing tells when there are some again

    def _greet(self, sock: socket.socket) -> None:
        with suppress(OSError):  # the receiver is gone, or never was one: there is nobody to tell
            end = SourceEnd(sock, self.secret)
            serve = self._serve()
            if serve is None:
                end.close()
            else:
                serve(end)


def own_address() -> str:
    """This host's address on its default route, by which other hosts reach it; else the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only makes the kernel choose a route
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


def _prove(secret: bytes, role: bytes, nonce: bytes, key: bytes) -> bytes:
    return hmac.digest(secret, b"%b %b %b" % (role, nonce, key), "sha256")


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    _receive_into(sock, [memoryview(buffer)])
    return bytes(buffer)


def _receive_into(sock: socket.socket, buffers: Iterable[memoryview]) -> None:
    # MSG_WAITALL makes one call fill all of its buffers, however many packets that takes.
    def receive(batch: list[Any]) -> int:
        return sock.recvmsg_into(batch, 0, socket.MSG_WAITALL)[0]

    move_all(receive, buffers)
