"""Tables as streams of Arrow's own IPC format, in the metadata."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rdt_conformance import TransportProfile
from subjects.base import PackingTransport


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


class SendsWholeBuffers(ArrowIpcTransport):
    """Sends all that the buffers hold, of which a slice shows a part."""

    def pack(self, value: Any) -> bytes:
        chunks = [chunk for column in value.columns for chunk in column.chunks] if type(value) is pa.Table else []
        behind = b"".join(buffer.to_pybytes() for chunk in chunks for buffer in chunk.buffers() if buffer)
        stream = super().pack(value)
        return len(stream).to_bytes(8, "little") + stream + behind

    def unpack(self, packed: bytes) -> pa.Table:
        return super().unpack(packed[8 : 8 + int.from_bytes(packed[:8], "little")])


class RemembersAddresses(ArrowIpcTransport):
    """Knows a table again by where its memory is, and need not pack it twice."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}

    def pack(self, value: Any) -> bytes:
        if type(value) is not pa.Table or not value.num_rows or not value.num_columns:
            return super().pack(value)
        address = max(buffer.address for buffer in value.column(0).chunk(0).buffers() if buffer)
        return self._known.setdefault(address, super().pack(value))


PROFILE = TransportProfile(ArrowIpcTransport, data_type=pa.Table)
FIRST_BATCH = TransportProfile(SendsTheFirstBatch, data_type=pa.Table)
FORGETS = TransportProfile(ForgetsWhatIsMissing, data_type=pa.Table)
WHOLE = TransportProfile(SendsWholeBuffers, data_type=pa.Table)
REMEMBERS = TransportProfile(RemembersAddresses, data_type=pa.Table)
