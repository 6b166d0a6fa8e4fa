"""Segments of shared memory: nameless files that a source fills and receivers map, guarded by file locks.

A receiver holds a shared lock on a segment while it reads it, or views it. The lock belongs to the open file, and so to
what is mapped of that: it needs no descriptor, and the kernel drops it with the receiver, however that ends.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

from reference_transports._layout import TensorMeta, advise, sizes

TOKEN_BYTES = 16
_PAGE = mmap.PAGESIZE
_ALIGNED = 64

_MOST_IDLE = 16
_MOST_IDLE_BYTES = 512 << 20
"""What a source keeps of the segments of freed objects. Memory fresh from the kernel takes five to nine times as long
to fill as memory that was in use before."""
_MOST_MAPPED = 8
_LEAST_MAPPED_BYTES = 64 << 10
_MOST_MAPPED_BYTES = 512 << 20
"""What a receiver keeps mapped of the segments that it copied from. To read a mapping for the first time takes about
twice as long as to read it again. Small segments are not worth it: they would only displace the others."""

_POPULATE_WRITE = 23
"""``MADV_POPULATE_WRITE``, Linux 5.14: maps all pages at once."""

_libc = ctypes.CDLL(None, use_errno=True)
_map = _libc.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_unmap = _libc.munmap
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class Span:
    """Where the tensors of an object lie in its segment, one after the other, and the token behind them."""

    def __init__(self, tensor_meta: TensorMeta) -> None:
        self.nbytes = sizes(tensor_meta)
        *self.offsets, self.token = accumulate([-(-size // _ALIGNED) * _ALIGNED for size in self.nbytes], initial=0)
        self.end = self.token + TOKEN_BYTES


class Mapping:
    """A part of a file, from its start, in memory; for as long as anything refers to it or to an array made of it.

    Unlike `mmap.mmap` it takes no descriptor, so that thousands may exist.

    Args:
        fd: the file, which may be closed then.
        size: in bytes, not more than the file has: to touch what is beyond kills the process.
        flags: `mmap.MAP_SHARED`, or `mmap.MAP_PRIVATE` if what is written to it shall stay out of the file.
        access: what can be done with it.
    """

    def __init__(self, fd: int, size: int, flags: int, access: int = mmap.PROT_READ | mmap.PROT_WRITE) -> None:
        self.size = 0
        address = _map(None, size, access, flags, fd, 0)
        if address is None or address == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot map {size} bytes of shared memory: {os.strerror(code)}")
        self.address, self.size = address, size

    def advise(self, advice: int) -> None:
        """Tell the kernel, which need not understand."""
        advise(self.address, self.size, advice)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}

    def __del__(self, unmap: Any = _unmap) -> None:
        if self.size:
            unmap(self.address, self.size)


class Segment:
    """The source's side of a segment: it holds an object, or is idle. Closed with its last reference.

    Raises:
        OSError: shared memory is full. All of it is there once a segment is: a mapping has no other way to tell than
            to kill the process.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.token = b""
        self._token_at = 0
        self.fd = os.open("/dev/shm", os.O_TMPFILE | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(self.fd, 0, size)
            self.memory = Mapping(self.fd, size, mmap.MAP_SHARED)
        except OSError as error:
            self.close()
            raise OSError(error.errno, f"cannot put {size} bytes into /dev/shm: {error.strerror}") from None
        self.memory.advise(_POPULATE_WRITE)

    def publish(self, span: Span) -> None:
        """Let receivers in: the object is complete."""
        self.token, self._token_at = secrets.token_bytes(TOKEN_BYTES), self.memory.address + span.token
        ctypes.memmove(self._token_at, self.token, TOKEN_BYTES)

    def wipe(self) -> None:
        """Let no receiver in any more. Those who are in may stay."""
        if self.token:
            ctypes.memset(self._token_at, 0, TOKEN_BYTES)
            self.token = b""

    def is_unread(self) -> bool:
        """Whether no receiver is in. As none gets in without a token, that stays true once the segment is wiped."""
        with suppress(BlockingIOError):
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            return True
        return False

    def discard(self) -> None:
        """Give the memory of a wiped segment back, when its last reader is gone."""
        if self.is_unread():
            self.memory.advise(mmap.MADV_REMOVE)  # now, though receivers may still have it mapped for the next object
        self.close()

    def close(self) -> None:
        """Forget it. The kernel frees it when no receiver has it mapped."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    __del__ = close


class _Keepable(Protocol):
    @property
    def size(self) -> int: ...

    def discard(self) -> None: ...


Kept = TypeVar("Kept", bound=_Keepable)


class Shelf(Generic[Kept]):
    """What may be used again, the latest last: a bounded number of bounded size, beyond which the oldest is discarded.

    Without a lock, which Python's garbage collector might want to enter in the same thread once more: it may end an
    object of Ray's anywhere, and so call garbage_collect. Every access is a single step of a list instead, and whoever
    removes a thing from it has the thing alone.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self.most_bytes = most, most_bytes
        self._things: list[Kept] = []

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._things.copy())

    def take(self, fits: Callable[[Kept], bool]) -> Iterator[Kept]:
        """Those that fit, each removed as it is reached."""
        for thing in reversed(self._things.copy()):
            if fits(thing):
                with suppress(ValueError):  # another thread was faster
                    self._things.remove(thing)
                    yield thing

    def put(self, thing: Kept) -> None:
        """Keep it, unless it alone is too large."""
        if thing.size > self.most_bytes:
            thing.discard()
        else:
            self._things.append(thing)
            self.shrink(self._most, self.most_bytes)

    def shrink(self, most: int = 0, most_bytes: int = 0) -> bool:
        """Discard the oldest until there are not more than that. Whether there were."""
        shrunk = False
        while len(self._things) > most or sum(thing.size for thing in self._things) > most_bytes:
            with suppress(IndexError):
                self._things.pop(0).discard()
                shrunk = True
        return shrunk


def _at_most(size: int) -> int:
    """That, or a quarter of all shared memory: containers often have very little."""
    state = os.statvfs("/dev/shm")
    return min(size, state.f_blocks * state.f_frsize // 4)


class Pool:
    """The segments of a source that are idle, though some of them may still be read."""

    def __init__(self) -> None:
        self._idle = Shelf[Segment](_MOST_IDLE, _at_most(_MOST_IDLE_BYTES))

    def take(self, span: Span) -> Segment:
        """A segment for this object, that nobody reads.

        Raises:
            OSError: shared memory is full.
        """
        size = self._rounded(span)
        read = []
        try:
            for segment in self._idle.take(lambda idle: idle.size == size):
                if segment.is_unread():
                    return segment
                read.append(segment)
        finally:
            for segment in read:
                self._idle.put(segment)
        try:
            return Segment(size)
        except OSError:
            if not self._idle.shrink():
                raise
        return Segment(size)

    def give(self, segment: Segment) -> None:
        """Take back a segment whose object is gone, from now on."""
        segment.wipe()
        self._idle.put(segment)

    def _rounded(self, span: Span) -> int:
        """The bytes up to one of four steps for each power of two, so that objects of about the same size can use each
        other's segments, and a page for the token. Segments that are not kept have no need for that."""
        step = max(_PAGE, 1 << span.token.bit_length() - 3 if 8 <= span.token <= self._idle.most_bytes else 1)
        return -(-span.token // step) * step + _PAGE


class Window:
    """A receiver's look into a segment, which holds the same object as long as this is open: the segment is locked.

    Args:
        pid: the source process.
        fd: its descriptor of the segment.
        span: where in it the object is.
        token: the object's.

    Raises:
        OSError: the source is gone, or the object.
    """

    def __init__(self, pid: int, fd: int, span: Span, token: bytes) -> None:
        self.pid, self._span, self._fd = pid, span, -1
        self._fd = os.open(f"/proc/{pid:d}/fd/{fd:d}", os.O_RDONLY | os.O_NONBLOCK)
        if not self._holds(token):
            os.close(self._fd)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def _holds(self, token: bytes) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            found = os.pread(self._fd, TOKEN_BYTES, self._span.token)  # there may be no memory there, to be mapped
        except (OSError, OverflowError):  # the source is about to use it again, or it never was a segment
            return False
        return found == token != bytes(TOKEN_BYTES) and len(found) == TOKEN_BYTES

    def own(self) -> Mapping:
        """The object as memory of the caller's own: its pages are the segment's until they are written to.

        It takes the place of the window, which is closed: the segment stays locked as long as this exists.
        """
        memory = Mapping(self._fd, self._span.end, mmap.MAP_PRIVATE)
        os.close(self._fd)
        self._fd = -1
        return memory

    def identify(self) -> tuple[tuple[int, int], int]:
        """Which file the segment is, among all that exist, and its size."""
        state = os.fstat(self._fd)
        return (state.st_dev, state.st_ino), state.st_size

    def map(self, size: int) -> Mapping:
        """The segment itself, to be read while it is locked."""
        return Mapping(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ)

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough if it was mapped
            os.close(self._fd)


@dataclass(eq=False)
class _Page:
    """A segment that is mapped, and which one it is."""

    identity: tuple[int, int]
    pid: int
    memory: Mapping

    @property
    def size(self) -> int:
        return self.memory.size

    def discard(self) -> None:
        """Nothing: it is unmapped with the last reference, which a thread that reads it may have."""


class Atlas:
    """The segments that a receiver keeps mapped, to copy from them again."""

    def __init__(self) -> None:
        self._pages = Shelf[_Page](_MOST_MAPPED, _at_most(_MOST_MAPPED_BYTES))

    def memory(self, window: Window) -> Mapping:
        """The segment behind the window, to be read while that is open."""
        identity, size = window.identify()
        for page in self._pages:
            if page.identity == identity:
                return page.memory
        page = _Page(identity, window.pid, window.map(size))
        if size >= _LEAST_MAPPED_BYTES:
            for _ in self._pages.take(lambda kept: not os.path.exists(f"/proc/{kept.pid}")):
                pass  # its source is gone, and this may be the last that keeps the memory
            self._pages.put(page)
        return page.memory
