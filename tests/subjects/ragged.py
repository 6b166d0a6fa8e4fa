"""A data type that only its author knows, with a transport of it, and what the suite has to be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rdt_conformance import TransportProfile, ValueKind
from rdt_conformance.payloads.value_kind import GivenMemory, contents
from subjects.base import PackingTransport


@dataclass(eq=False)
class Ragged:
    """Rows of different lengths."""

    lengths: np.ndarray
    """Of each row; int64."""
    values: np.ndarray
    """Of all rows, one after the other; float32."""


class RaggedKind(ValueKind):
    """A form is the lengths of the rows."""

    data_type: ClassVar[type] = Ragged
    in_given_memory = True

    def forms(self) -> dict[str, tuple[int, ...]]:
        return {"one row": (4,), "rows": (3, 1, 2), "rows without elements": (2, 0, 3, 0), "no rows": ()}

    def sized(self, nbytes: int) -> tuple[int, ...]:
        return (-(-nbytes // 4),)

    def nbytes(self, form: Any) -> int:
        return 8 * len(form) + 4 * sum(form)

    def build(self, form: Any, seed: int, memory: GivenMemory) -> Ragged:
        lengths = memory(8 * len(form)).view(np.int64)
        lengths[...] = form
        values = memory(4 * sum(form))
        values[...] = contents(values.size, seed)
        return Ragged(lengths, values.view(np.float32))

    def difference(self, sent: Ragged, received: Ragged) -> str:
        if received.lengths.tolist() != sent.lengths.tolist():
            return f"has rows of {received.lengths.tolist()}, sent {sent.lengths.tolist()}"
        return "" if received.values.tobytes() == sent.values.tobytes() else "has other values"

    def meta(self, value: Ragged) -> tuple[Any, Any]:
        return (len(value.lengths), len(value.values)), value.values.dtype


class RaggedTransport(PackingTransport):
    """Right."""

    def pack(self, value: Any) -> bytes:
        if not isinstance(value, Ragged):
            raise ValueError(f"a {type(value).__name__} is not Ragged")
        return np.int64(value.lengths.size).tobytes() + value.lengths.tobytes() + value.values.tobytes()

    def unpack(self, packed: bytes) -> Ragged:
        rows = int.from_bytes(packed[:8], "little")
        lengths = np.frombuffer(packed, np.int64, rows, 8)
        return Ragged(lengths, np.frombuffer(packed, np.float32, offset=8 + 8 * rows))

    def meta(self, value: Ragged) -> tuple[Any, Any]:
        return (len(value.lengths), len(value.values)), value.values.dtype


class LosesEmptyRows(RaggedTransport):
    """Splits at the ends of rows, and finds nothing between two that are the same."""

    def unpack(self, packed: bytes) -> Ragged:
        whole = super().unpack(packed)
        return Ragged(whole.lengths[whole.lengths > 0], whole.values)


PROFILE = TransportProfile(RaggedTransport, payload_kind=RaggedKind())
EMPTY_ROWS = TransportProfile(LosesEmptyRows, payload_kind=RaggedKind())
