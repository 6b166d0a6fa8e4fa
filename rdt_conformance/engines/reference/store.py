"""Where one process keeps the tensors of RDT objects: its own (primary) and those that were sent to it."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from rdt_conformance.engines.reference.waiting import wait_until


@dataclass
class _Copy:
    tensors: list[Any]
    primary: bool
    error: BaseException | None = None


class Store:
    """Thread-safe: user code, the system lane and the owner's callbacks all come here.

    An object may be received several times by one actor (the same ref in two calls), hence a queue of copies per
    object: each task takes its own.
    """

    def __init__(self) -> None:
        self._copies: dict[str, deque[_Copy]] = defaultdict(deque)
        self._changed = threading.Condition()

    def add_primary(self, obj_id: str, tensors: list[Any]) -> list[Any]:
        """Keep the tensors of an object created here; returns the tensors that count.

        A task whose reply was lost runs again for the same object: the first result stays, since it may already be on
        its way to somebody.
        """
        with self._changed:
            copies = self._copies[obj_id]
            if not copies:
                copies.append(_Copy(tensors, primary=True))
                self._changed.notify_all()
            return copies[0].tensors

    def add_received(self, obj_id: str, tensors: list[Any]) -> None:
        """Keep tensors that a transfer brought, until a task takes them."""
        self._append(obj_id, _Copy(tensors, primary=False))

    def add_error(self, obj_id: str, error: BaseException) -> None:
        """Keep a failed transfer's error in place of tensors; whoever takes the object gets it raised."""
        self._append(obj_id, _Copy([], primary=False, error=error))

    def _append(self, obj_id: str, copy: _Copy) -> None:
        with self._changed:
            self._copies[obj_id].append(copy)
            self._changed.notify_all()

    def has_primary(self, obj_id: str) -> bool:
        """Whether the object was created here and is not freed yet."""
        with self._changed:
            copies = self._copies.get(obj_id)
            return bool(copies) and copies[0].primary

    def primary(self, obj_id: str) -> list[Any]:
        """The tensors of an object created here.

        Raises:
            KeyError: not here, or already freed.
        """
        with self._changed:
            if not self.has_primary(obj_id):
                raise KeyError(f"object {obj_id} is not in this actor's store")
            return self._copies[obj_id][0].tensors

    def wait_primary(self, obj_id: str, timeout: float) -> list[Any]:
        """Like `primary`, for an object that is about to be created.

        Raises:
            TimeoutError: not created within `timeout` seconds.
        """
        with self._changed:
            # Not `wait_until`: this takes the lock, and so would whoever asks whether it has come.
            if not self._changed.wait_for(lambda: self.has_primary(obj_id), timeout):
                raise TimeoutError(f"object {obj_id} was not created within {timeout:g} s")
            return self._copies[obj_id][0].tensors

    def take(self, obj_id: str, timeout: float) -> list[Any]:
        """Wait for the object, then take one received copy out, or look at the primary copy.

        Raises:
            TimeoutError: nothing arrived within `timeout` seconds.
            BaseException: the error of the transfer that should have brought it.
        """
        with self._changed:
            if not wait_until(self._changed, lambda: bool(self._copies.get(obj_id)), timeout):
                raise TimeoutError(f"object {obj_id} did not arrive within {timeout:g} s")
            copies = self._copies[obj_id]
            if copies[0].primary:
                return copies[0].tensors
            copy = copies.popleft()
            if not copies:
                del self._copies[obj_id]
            if copy.error is not None:
                raise copy.error
            return copy.tensors

    def discard(self, obj_id: str) -> None:
        """Let go of one received copy, if there is one."""
        with self._changed:
            copies = self._copies.get(obj_id)
            if copies and not copies[0].primary:
                copies.popleft()
                if not copies:
                    del self._copies[obj_id]

    def drop_primary(self, obj_id: str) -> None:
        """Let go of an object created here."""
        with self._changed:
            copies = self._copies.get(obj_id)
            if copies and copies[0].primary:
                copies.popleft()
                if not copies:
                    del self._copies[obj_id]
            self._changed.notify_all()

    def wait_freed(self, tensor: Any, timeout: float | None) -> None:
        """Wait until no object here holds `tensor` any more, so that it may be written to again.

        Raises:
            TimeoutError: still held after `timeout` seconds; None waits for ever.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._holds(tensor), timeout):
                raise TimeoutError(f"the tensor was not freed within {timeout:g} s: a ref to it is still alive")

    def _holds(self, tensor: Any) -> bool:
        return any(held is tensor for copies in self._copies.values() for copy in copies for held in copy.tensors)

    def objects(self) -> list[str]:
        """The ids of everything kept here, for checks and tests."""
        with self._changed:
            return [obj_id for obj_id, copies in self._copies.items() for _ in copies]
