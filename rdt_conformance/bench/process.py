"""A process that does what another one tells it to: the receiver obeys pytest's, and the source the receiver."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection, wait
from typing import Any

PATIENCE_SECONDS = 60.0
"""How long any one call may take."""


class ProcessGone(Exception):
    """A process ended, or did not answer in time; it is of no use any more."""


class RemoteError(Exception):
    """What was raised in another process, in words."""


class Remote:
    """A process with objects in it, which are known here by numbers. It ends with the process that started it.

    Args:
        name: what it is called where something is said of it.
        gpu: number of the one GPU that it sees, among those that this process sees; it sees the same ones if None.
    """

    def __init__(self, name: str, gpu: int | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._name = name
        self._pipe, theirs = context.Pipe()
        visible = None if gpu is None else _only(gpu)
        self._process = context.Process(target=_obey, args=(theirs, visible), name=name)
        self._process.start()
        theirs.close()
        self._made = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid or 0

    def make(self, kind: type, *args: Any) -> int:
        """Build an object there; the number that it is known by."""
        self._made += 1
        self._ask("make", self._made, kind, args)
        return self._made

    def call(self, number: int, method: str, *args: Any) -> Any:
        """What a method of an object there returns.

        Raises:
            ProcessGone: it ended, or did not answer within `PATIENCE_SECONDS`.
            RemoteError: what the method raised.
        """
        return self._ask("call", number, method, args)

    def begin(self, number: int, method: str, *args: Any) -> None:
        """Return when the method is just about to be called; `end` must follow."""
        self._ask("begin", number, method, args)

    def end(self) -> Any:
        """What the method that was begun returns."""
        return self._answer()

    def forget(self, number: int) -> None:
        """Drop an object."""
        self._ask("forget", number, "", ())

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._pipe.close()
        self._process.join(2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, what: str, number: int, of: Any, args: Any) -> Any:
        try:
            self._pipe.send((what, number, of, args))
        except OSError as error:
            raise self._gone() from error
        return self._answer()

    def _answer(self) -> Any:
        if not self._pipe.poll(PATIENCE_SECONDS):
            raise ProcessGone(f"the {self._name} has not answered within {PATIENCE_SECONDS:.0f} s")
        try:
            value, error = self._pipe.recv()
        except (EOFError, OSError) as problem:
            raise self._gone() from problem
        if error is not None:
            raise error
        return value

    def _gone(self) -> ProcessGone:
        self._process.join(1)
        return ProcessGone(f"the {self._name} ended with status {self._process.exitcode}")


def _only(gpu: int) -> str:
    """What CUDA_VISIBLE_DEVICES is for a process that sees one of the GPUs that this one sees."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not seen.strip():
        return str(gpu)
    listed = [each.strip() for each in seen.split(",")]
    if gpu >= len(listed):
        raise ValueError(f"there is no GPU number {gpu} among CUDA_VISIBLE_DEVICES={seen}")
    return listed[gpu]


def _obey(pipe: Connection, visible: str | None) -> None:
    """Serve a `Remote` until it closes its end, or is gone."""
    if visible is not None:  # before anything can have looked for GPUs
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest's process, which then closes the pipe
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.disable(logging.INFO)
    objects: dict[int, Any] = {}
    while True:
        try:
            what, number, of, args = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # a transport's threads must not keep it
        try:
            value = None
            if what == "make":
                objects[number] = of(*args)
                if number == 1:  # all is imported
                    gc.freeze()
                    gc.disable()  # garbage is collected when an object is dropped, and not while time is taken
            elif what == "forget":
                objects.pop(number, None)
                gc.collect()
            else:
                if what == "begin":
                    pipe.send((None, None))
                value = getattr(objects[number], of)(*args)
            pipe.send((value, None))
        except Exception as error:
            pipe.send((None, _sendable(error)))


def _sendable(error: Exception) -> Exception:
    """An error that can be pickled, in the words of whoever raised it first."""
    if isinstance(error, ProcessGone | RemoteError):
        return error
    return RemoteError("".join(traceback.format_exception_only(error)).strip())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
