"""RDT as the vocabulary needs it: the reference (`reference.rdt`) or Ray's own (`ray.rdt`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol


class Ref(Protocol):
    """A counted reference to an object, held by the driver. While one is alive anywhere, the object stays."""

    @property
    def obj_id(self) -> str:
        """The object's id, 56 hexadecimal digits."""
        ...

    def drop(self) -> None:
        """Let go of the object now; the reference must not be used afterwards."""
        ...


class Rdt(Protocol):
    """The verbs of RDT. Processes go by their names; values that they keep, by the keys of those.

    Functions are called in the process with its worker first, see `reference.user_code`.
    """

    def produce(self, actor: str, function: Callable[..., Any], args: Sequence[Any]) -> Ref:
        """A task of `actor` returns tensors, and the driver owns the object that they make up."""
        ...

    def put(self, process: str, tensors: int) -> Future[Ref]:
        """The process puts tensors that it keeps and owns the object; the driver gets a reference."""
        ...

    def consume(self, actor: str, refs: Sequence[Ref], named: Mapping[str, Ref]) -> Future[int]:
        """A task of `actor` takes objects as arguments and keeps them; the key of the list of them."""
        ...

    def get(
        self, process: str, refs: Sequence[Ref], timeout: float | None, *, through_store: bool, buffers: int | None
    ) -> Future[int]:
        """The process gets objects, into kept target buffers if given; the key of the list of them."""
        ...

    def get_onto(self, ref: Ref, device: str, timeout: float | None) -> Future[int]:
        """The driver gets an object onto a device; the key of the list of the one object."""
        ...

    def wait_freed(self, process: str, tensors: int, timeout: float) -> Future[None]:
        """Wait in the process until no object there holds the first of the kept tensors."""
        ...

    def metadata_of(self, ref: Ref) -> Future[bytes]:
        """The pickled metadata of an object of the driver's, once the object exists."""
        ...

    def replace_metadata(self, ref: Ref, metadata: bytes) -> Future[None]:
        """From now on the driver, which owns the object, hands out these metadata."""
        ...

    def settle(self, seconds: float) -> bool:
        """Wait until every object that nobody refers to has been freed; whether that came true."""
        ...

    def tidy(self, seconds: float) -> bool:
        """The same, and let all processes forget what nobody can ask them for any more."""
        ...
