"""What a payload and a kind of payload are, whatever the array library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from typing_extensions import Self

    from rdt_conformance.payloads.watching import Fingerprint, Guard, Lifetimes

DEFAULT_MAX_TENSORS = 4
DEFAULT_MAX_BYTES = 65 << 10
"""Enough to cross the edge at 64 KiB."""


class _Anything:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return "anything"


ANYTHING = _Anything()
"""A shape or dtype that nobody asks for."""


class Recipe(Protocol):
    """A recipe of an ordered list of tensors: plain data, equal and hashable by value, and it pickles.

    Its ``repr`` is short and for people: ``2 tensors: float32[3,4] transposed, uint8[0]``.
    """

    @property
    def count(self) -> int:
        """How many tensors it has."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all elements of all tensors."""
        ...

    def build(self, device: str = "cpu") -> list[Any]:
        """The tensors; new ones, with the same bytes, at every call and in every process."""
        ...

    def differences(self, received: Sequence[Any]) -> list[str]:
        """How what was received differs in count, order, dtype, shape or any byte.

        Args:
            received: what a transport returned; anything at all, it is not modified.

        Returns:
            Plain sentences, such as ``tensor 1: byte 64 is 0x00, sent 0xA7 (element [0, 16]); 4 of 256 bytes differ``;
            empty if all agree.
        """
        ...


class Payload(Recipe, Protocol):
    """A recipe of tensors that lie in plain memory."""

    def inverse(self) -> Self:
        """The same tensors with other contents: every bit that may differ does, so no byte can pass for the other's."""
        ...

    def plain(self) -> Self:
        """Contiguous tensors of the same dtypes and shapes, each alone in its memory."""
        ...


class Refusable(Recipe, Protocol):
    """A recipe of a tensor that is not, or not only, plain memory."""

    @property
    def may_crash(self) -> bool:
        """Whether a transport that carries it as bytes, instead of refusing it, can crash its process."""
        ...


class Family(Protocol):
    """Several payloads whose tensors share memory, to be sent as several objects that are alive together."""

    @property
    def payloads(self) -> tuple[Payload, ...]:
        """A recipe for each object."""
        ...

    def build(self, device: str = "cpu") -> list[list[Any]]:
        """The tensors of each payload, in order."""
        ...


class PayloadKind(Protocol):
    """All that the suite knows about one array library."""

    data_type: type
    """What `register_tensor_transport` calls the data type."""
    writable: bool
    """Whether `overwrite` can write into tensors."""
    has_parts: bool
    """Whether a tensor can lie in the memory of a larger one, so that there is a `small_view`."""
    in_chosen_memory: bool
    """Whether `build_in` has a say in where tensors lie."""

    def payloads(
        self,
        *,
        device: str = "cpu",
        min_tensors: int = 0,
        max_tensors: int = DEFAULT_MAX_TENSORS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        plain: bool = False,
        refusable: bool = True,
        avoid: frozenset[str] = frozenset(),
    ) -> SearchStrategy[Payload]:
        """Payloads of many tensors; they shrink towards one small plain float32 tensor.

        Args:
            device: device type that the tensors will be built on.
            min_tensors: at least so many tensors.
            max_tensors: at most so many.
            max_bytes: of the elements of one tensor. The memory that a view lies in may be larger.
            plain: only contiguous tensors of ordinary dtypes, which every transport must take.
            refusable: also tensors that are more than a view of memory (lazily conjugated or negated).
            avoid: traits, as `plain_traits` names them, that none of them has.
        """
        ...

    def every_contiguous(self, device: str = "cpu") -> Sequence[Payload]:
        """Payloads of one contiguous tensor: every dtype there is, every number of dimensions."""
        ...

    def every_view(self, device: str = "cpu") -> Sequence[Payload]:
        """Payloads of tensors that are more than contiguous: every layout, alone and with others in its memory."""
        ...

    def families(
        self, *, device: str = "cpu", max_bytes: int = DEFAULT_MAX_BYTES, avoid: frozenset[str] = frozenset()
    ) -> SearchStrategy[Family]:
        """Families of plain dtypes: the same tensor, base and view, overlapping and neighbouring views.

        Args:
            device: device type that the tensors will be built on.
            max_bytes: of the memory that is shared.
            avoid: traits, as `plain_traits` names them, that none of their payloads has.
        """
        ...

    def plain_traits(self, device: str = "cpu") -> Sequence[tuple[str, Payload]]:
        """Every trait that plain payloads and families may have, with a payload that has no other; dtypes first.

        The dtype of bytes, as in `simple`, is the one with which the traits that are no dtypes come.
        """
        ...

    def simple(self, nbytes: int, count: int = 1, seed: int = 0) -> Payload:
        """Contiguous tensors of bytes.

        Args:
            nbytes: of all tensors together.
            count: how many tensors; the first ones take what does not divide evenly.
            seed: of the contents. Payloads of different seeds differ.
        """
        ...

    def small_view(self, nbytes: int, whole: int) -> Payload:
        """One tensor of bytes, of about `nbytes`, that is a view of a memory of `whole` bytes, which may be as few."""
        ...

    def refusable_payloads(self, device: str = "cpu") -> Sequence[Refusable]:
        """What a transport may refuse, with an error when it extracts metadata, but must never carry wrongly.

        There is at least one.

        Args:
            device: device type that the tensors will be built on; what cannot lie there is left out.
        """
        ...

    def on_another_device(self, device: str = "cpu") -> list[Any]:
        """One empty tensor on another type of device than `device`; none if there is no other type."""
        ...

    def buffers(self, payload: Payload, device: str = "cpu") -> list[Any]:
        """Contiguous target buffers for a payload, each holding the inverse of what is to arrive in it."""
        ...

    def guarded_buffers(self, payload: Payload, device: str = "cpu") -> tuple[list[Any], Guard]:
        """The same as contiguous views of one larger memory, and a guard over the rest of that memory."""
        ...

    def room(self, payload: Payload, device: str = "cpu") -> Any:
        """Memory for a plain payload or a smaller one, at an address that stays the same."""
        ...

    def build_in(self, room: Any, payload: Payload) -> list[Any]:
        """The tensors of a plain payload, as if a room's memory had been freed and allocated again for them.

        Args:
            room: what `room` returned. Tensors that were built in it before are overwritten, unless it is on a GPU.
            payload: no larger than the one that the room was made for. Of two payloads the first tensors have the same
                address, on a GPU only if those of the first one are gone; each tensor counts as alone in its memory.
        """
        ...

    def fingerprint(self, tensors: Sequence[Any]) -> Fingerprint:
        """What can be seen of tensors, and all bytes of the memories that they lie in."""
        ...

    def overwrite(self, tensors: Sequence[Any], payload: Payload) -> None:
        """Write a payload's bytes into tensors in place, as a source's user may do at any time.

        Args:
            tensors: of the payload's dtypes and shapes, such as those that its inverse built.
            payload: what they hold afterwards.

        Raises:
            ValueError: a tensor is read-only.
        """
        ...

    def metas(self, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The shape and dtype of each tensor, as ``tensor_meta`` must list them."""
        ...

    def tracked(self, payload: Payload, device: str = "cpu") -> tuple[list[Any], Lifetimes]:
        """The tensors of a payload, and whether anybody still refers to their memories: tensors, views, storages."""
        ...

    def share_memory(self, a: Any, b: Any) -> bool:
        """Whether two tensors have a byte in common, by address: the same memory mapped twice goes unnoticed."""
        ...

    def traits(self, tensors: Sequence[Any], device: str = "cpu") -> list[str]:
        """How tensors deviate from contiguous, writable ones of the plain type on a device, a sentence for each."""
        ...
