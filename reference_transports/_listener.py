"""The source's side of the socket transports: where receivers connect, and the threads that serve them."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ray.experimental import TensorTransportManager

from reference_transports._layout import describe
from reference_transports._wire import SourceEnd, SourceMetadata


class Listener:
    """Accepts receivers, from the first object on, and serves each that knows the secret on a thread of its own.

    Args:
        transport: held weakly; when it is dropped, the listener and its connections close.
        serve: a method of the transport, called with the source's end of a connection and the key that the receiver
            asks for. It gives whether another request may follow; if not, the end is its to close.
    """

    def __init__(self, transport: TensorTransportManager, serve: Callable[[SourceEnd, str], bool]) -> None:
        self.secret = secrets.token_bytes(32)
        self._serve = weakref.WeakMethod(serve)
        # Owners build the transport too, and never send.
        self._opening = threading.Lock()
        self._server: socket.socket | None = None
        self._ends: set[SourceEnd] = set()
        self._closed = False
        weakref.finalize(transport, self.close)

    def metadata(self, tensors: list[Any]) -> SourceMetadata:
        """Describe the tensors, and say where this process listens.

        Raises:
            ValueError: a tensor is not plain CPU memory. Nothing was set up.
        """
        tensor_meta = describe(tensors)
        with self._opening:
            if self._server is None:
                self._server = socket.create_server((own_address(), 0), backlog=socket.SOMAXCONN)
                self._address = self._server.getsockname()
                threading.Thread(
                    target=self._accept, args=[self._server], name="rdt-socket-listener", daemon=True
                ).start()
        return SourceMetadata(tensor_meta, "cpu" if tensors else None, self._address, self.secret)

    def close(self) -> None:
        """Stop accepting. Takes no lock, because it runs as a finalizer, on any thread at any time."""
        self._closed = True
        if self._server is not None:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes the socket
        for end in list(self._ends):
            end.abort()

    def _accept(self, server: socket.socket) -> None:
        with server:
            while not self._closed:
                try:
                    args = [server.accept()[0]]
                    threading.Thread(target=self._attend, args=args, name="rdt-socket-server", daemon=True).start()
                except (OSError, RuntimeError):
                    if not self._closed:
                        time.sleep(0.05)  # out of files or of threads, and nothing tells when there are some again

    def _attend(self, sock: socket.socket) -> None:
        with suppress(OSError):  # the receiver is gone, or never was one: there is nobody to tell
            end = SourceEnd(sock, self.secret)
            self._ends.add(end)
            try:
                while self._serve_next(end):
                    pass
            except BaseException:
                end.close()
                raise
            finally:
                self._ends.discard(end)

    def _serve_next(self, end: SourceEnd) -> bool:
        """Hear and serve a request. The transport is not held while none comes."""
        if self._closed:
            raise ConnectionAbortedError
        key = end.hear().decode()
        serve = self._serve()
        if serve is None:
            raise ConnectionAbortedError
        return serve(end, key)


def own_address() -> str:
    """This host's address on its default route, by which other hosts reach it; else the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only makes the kernel choose a route
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]
