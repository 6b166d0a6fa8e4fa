"""What other processes of the same host use is kept until they have let go of it, or are dead.

The kernel counts. For each thing that it lends, a process has the read end of a nameless pipe. Whoever borrows it opens
a write end, as ``/proc/<pid>/fd/<fd>``, where nobody can but the same user (and root); and has it open for as long as
the thing is in use. The kernel closes it with its process, however that ends. When the last one is closed, the read end
tells that it was hung up: that is the only message, and all that the lender waits for.

A thing that is lent or borrowed costs a file descriptor. A process that forks lets its child keep what it has borrowed.
"""

from __future__ import annotations

import os
import select
import threading
from functools import cache
from typing import Any


class Lent:
    """Something that others may borrow, until this is closed; what they have borrowed by then they may keep.

    Args:
        thing: is referred to until the last of them has let go.
    """

    def __init__(self, thing: Any) -> None:
        self.fd, write_end = os.pipe()
        os.close(write_end)
        self.pipe = _identity(self.fd)
        """The pipe, among all that exist on this host."""
        self._thing = thing

    def close(self) -> None:
        """Let nobody borrow it any more. Harmless when repeated."""
        if self.fd < 0:
            return
        # From here on, nobody finds it: no borrower knows the new number. So once it is unused, it stays so.
        fd = os.dup(self.fd)
        os.close(self.fd)
        self.fd = -1
        if _is_hung_up(fd):
            os.close(fd)
        else:
            _attendant().keep(fd, self._thing)
        self._thing = None

    __del__ = close


class Borrowed:
    """A thing of another process, or of this one, until it is closed.

    Args:
        pid: whose it is.
        fd: as there.
        pipe: its identity.

    Raises:
        LookupError: there is no such thing (any more).
    """

    def __init__(self, pid: int, fd: int, pipe: tuple[int, int]) -> None:
        self._fd = -1
        try:
            self._fd = os.open(f"/proc/{pid:d}/fd/{fd:d}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            raise LookupError(error.strerror) from None
        if _identity(self._fd) != pipe:
            self.close()
            raise LookupError("something else is there")

    def close(self) -> None:
        """Let go of it. Harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close


class _Attendant:
    """A thread that drops things when nobody uses them any more."""

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}  # by read end. Every access is a single step, and needs no lock.
        self._hung_up = select.epoll()
        threading.Thread(target=self._run, name="rdt-loans", daemon=True).start()

    def keep(self, fd: int, thing: Any) -> None:
        self._kept[fd] = thing
        self._hung_up.register(fd, 0)  # to be hung up is told always

    def _run(self) -> None:
        while True:
            for fd, _ in self._hung_up.poll():
                self._kept.pop(fd)
                os.close(fd)


@cache
def _attendant() -> _Attendant:
    return _Attendant()


def _is_hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return bool(poll.poll(0))


def _identity(fd: int) -> tuple[int, int]:
    state = os.fstat(fd)
    return state.st_dev, state.st_ino
