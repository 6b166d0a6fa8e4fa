"""Tables as streams of Arrow's own IPC format, in the metadata."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from subjects.base import PackingTransport

from rdt_conformance import TransportProfile


class ArrowIpcTransport(PackingTransport):
    """Right."""

    def pack(self, value: Any) -> bytes:
        if type(value) is not pa.Table:
            raise ValueError(f"a {type(value).__name__} is no pyarrow.Table")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value)
        return sink.getvalue().to_pybytes()

    def unpack(self, packed: bytes) -> pa.Table:
        with pa.ipc.open_stream(packed) as reader:
            return reader.read_all()

    def meta(self, value: pa.Table) -> tuple[Any, Any]:
        return value.shape, value.schema


class SendsTheFirstBatch(ArrowIpcTransport):
    """Takes the first record batch of a table for the whole: right as long as nobody concatenates tables."""

    def pack(self, value: Any) -> bytes:
        first = value.to_batches()[:1] if type(value) is pa.Table else []
        return super().pack(pa.Table.from_batches(first, value.schema) if first else value)


class ForgetsWhatIsMissing(ArrowIpcTransport):
    """Goes by numpy for columns of numbers, where a missing integer is a float and a missing float a NaN."""

    def unpack(self, packed: bytes) -> pa.Table:
        table = super().unpack(packed)
        for number, field in enumerate(table.schema):
            if pa.types.is_floating(field.type):
                column = pa.array(table.column(number).to_numpy(), field.type)
                table = table.set_column(number, field, column)
        return table


class KeepsTheTable(ArrowIpcTransport):
    """Keeps the last table that it has described, to be quick if the same one comes again."""

    _last: Any = None

    def pack(self, value: Any) -> bytes:
        packed = super().pack(value)
        self._last = value.column(0).chunks if value.num_columns else None
        return packed


PROFILE = TransportProfile(ArrowIpcTransport, data_type=pa.Table)
FIRST_BATCH = TransportProfile(SendsTheFirstBatch, data_type=pa.Table)
FORGETS = TransportProfile(ForgetsWhatIsMissing, data_type=pa.Table)
KEEPS = TransportProfile(KeepsTheTable, data_type=pa.Table)
