"""Payloads of Arrow tables. They are immutable; a slice of one lies in the memory of the whole."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from rdt_conformance.payloads.base import ANYTHING
from rdt_conformance.payloads.value_kind import Form, GivenMemory, ValueKind, contents
from rdt_conformance.payloads.value_payloads import ValuePayloads

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_TYPES: dict[str, Any] = {
    str(each): each
    for each in (
        pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.date32(), pa.timestamp("us", "Europe/Paris"),
        pa.duration("ns"), pa.decimal128(38, 10), pa.binary(5), pa.binary(), pa.large_string(),
        pa.list_(pa.float32()), pa.large_list(pa.string()), pa.list_(pa.float64(), 3), pa.null(),
        pa.struct([("number", pa.float32()), ("text", pa.string())]), pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.struct([("deep", pa.list_(pa.bool_()))])),
    )
}  # fmt: skip
"""Types of columns by name, the plainest first."""
_WORDS = ("", "a", "long enough to lie anywhere", "zürich", "b")
_MOST_ELEMENTS = 5
"""A list, or a string, of a column has fewer than this."""


class TableForm(NamedTuple):
    """What a table looks like."""

    columns: tuple[str, ...]
    """The type of each, by its name."""
    rows: int
    nulls: bool = False
    """Values may be missing."""
    chunks: int = 1
    """In how many pieces columns lie."""
    metadata: bool = False
    """Schema and fields have some."""


class ArrowTables(ValueKind):
    """Tables of columns of most types; equal if schemas, with their metadata, and all values are, bit by bit.

    How a column is cut into chunks, and what lies where a value is missing, makes no difference.
    """

    data_type: ClassVar[type] = pa.Table
    in_given_memory = True

    def forms(self) -> dict[str, Form]:
        """Every type of column, with and without missing values, and whole tables of different shapes."""
        forms: dict[str, Form] = {f"column of {name}": TableForm((name,), 9) for name in _TYPES}
        forms |= {f"column of {name} with nulls": TableForm((name,), 21, nulls=True) for name in _TYPES}
        mixed = ("int64", "string", "double")
        return forms | {
            "all columns": TableForm(tuple(_TYPES), 5),
            "several chunks": TableForm(mixed, 100, nulls=True, chunks=4),
            "metadata": TableForm(mixed, 3, metadata=True),
            "no rows": TableForm(mixed, 0),
            "no rows, no chunks": TableForm(mixed, 0, chunks=0),
            "no columns": TableForm((), 0),
            "one row": TableForm(("int64",), 1),
            "many columns": TableForm(("int32",) * 300, 2),
        }

    def strategy(self, max_bytes: int) -> SearchStrategy[Form]:
        """Columns of any types, of which each value takes about 16 bytes."""

        def of(columns: list[str]) -> SearchStrategy[Form]:
            rows = st.integers(0, min(1000, max_bytes // (16 * len(columns))))
            return st.builds(TableForm, st.just(tuple(columns)), rows, st.booleans(), st.integers(1, 3), st.booleans())

        return st.lists(st.sampled_from(list(_TYPES)), min_size=1, max_size=4).flatmap(of)

    def sized(self, nbytes: int) -> Form:
        """One column of bytes."""
        return TableForm(("uint8",), nbytes)

    def nbytes(self, form: Any) -> int:
        """Exact for columns of integers."""
        return form.rows * sum(map(_width, form.columns))

    def build(self, form: Any, seed: int, memory: GivenMemory) -> pa.Table:
        """A table over memory that was given."""
        columns, fields = [], []
        for number, name in enumerate(form.columns):
            maker = _Maker(memory, seed + number * 1009, form.nulls)
            rows = [form.rows * n // form.chunks for n in range(form.chunks + 1)] if form.chunks else [0]
            chunks = [maker.array(_TYPES[name], end - begin) for begin, end in itertools.pairwise(rows)]
            columns.append(pa.chunked_array(chunks, _TYPES[name]))
            metadata = {"unit": f"m{number}"} if form.metadata else None
            fields.append(pa.field(f"c{number}", _TYPES[name], form.nulls or name == "null", metadata))
        schema = pa.schema(fields, {"made by": "é", "empty": ""} if form.metadata else None)
        return pa.Table.from_arrays(columns, schema=schema)

    def part(self, value: pa.Table) -> pa.Table:
        """A few rows, not the first ones."""
        first = value.num_rows // 3
        return value.slice(first, min(3, value.num_rows - first))  # beyond the end, a table without columns grows

    def difference(self, sent: pa.Table, received: pa.Table) -> str:
        """Schema and its metadata, number of rows, and every value."""
        try:
            received.validate(full=True)
        except pa.ArrowInvalid as error:
            return f"is broken: {str(error).splitlines()[0]}"
        if not received.schema.equals(sent.schema):
            return f"has schema {_words(received.schema)}, sent {_words(sent.schema)}"
        if not received.schema.equals(sent.schema, check_metadata=True):
            return "has other metadata in its schema than were sent"
        if received.num_rows != sent.num_rows:
            return f"has {received.num_rows} rows, sent {sent.num_rows}"
        for name, here, there in zip(sent.column_names, sent.columns, received.columns, strict=True):
            ours, theirs = _in_one_piece(here), _in_one_piece(there)
            if not _equal(ours, theirs):
                return f"column {name} ({here.type}) differs, first in row {_first_difference(ours, theirs)}"
        return ""

    def meta(self, value: pa.Table) -> tuple[Any, Any]:
        """Rows and columns. What stands for the dtype of a table, nothing says."""
        return value.shape, ANYTHING


class _Maker:
    """Makes arrays of any contents, each buffer in memory that was given."""

    def __init__(self, memory: GivenMemory, seed: int, nulls: bool) -> None:
        self._memory, self._seed, self._nulls = memory, seed, nulls

    def _bytes(self, nbytes: int) -> np.ndarray:
        """Given memory, filled; with other contents every time."""
        self._seed += 1
        given = self._memory(nbytes)
        given[...] = contents(nbytes, self._seed)
        return given

    def array(self, kind: Any, length: int) -> pa.Array:
        """An array of a type."""
        if pa.types.is_null(kind):
            return pa.nulls(length)
        if pa.types.is_dictionary(kind):
            indices = self._bytes(length)
            indices %= len(_WORDS)
            validity = self._validity(length)
            numbers = pa.Array.from_buffers(kind.index_type, length, [validity, pa.py_buffer(indices)])
            return pa.DictionaryArray.from_arrays(numbers, pa.array(_WORDS))
        validity, children = self._validity(length), []
        buffers: list[Any] = [validity]
        if pa.types.is_fixed_size_list(kind):
            children = [self.array(kind.value_type, length * kind.list_size)]
        elif pa.types.is_struct(kind):
            children = [self.array(kind.field(number).type, length) for number in range(kind.num_fields)]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            offsets, elements = self._offsets(length, wide=pa.types.is_large_list(kind))
            buffers.append(offsets)
            children = [self.array(kind.value_type, elements)]
        elif pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            offsets, elements = self._offsets(length, wide=pa.types.is_large_string(kind))
            text = self._bytes(elements)
            text &= 0x7F
            buffers += [offsets, pa.py_buffer(text)]
        else:
            buffers.append(pa.py_buffer(self._fixed(kind, length)))
        return pa.Array.from_buffers(kind, length, buffers, children=children)

    def _fixed(self, kind: Any, length: int) -> np.ndarray:
        data = self._bytes(-(-length * kind.bit_width // 8))
        if pa.types.is_decimal(kind):
            data.reshape(-1, 16)[:, 8:] = 0  # no more digits than it may have
        return data

    def _validity(self, length: int) -> Any:
        return pa.py_buffer(self._bytes(-(-length // 8))) if self._nulls else None

    def _offsets(self, length: int, *, wide: bool) -> tuple[Any, int]:
        """Where each of so many lists begins, and how many elements they have together."""
        lengths = self._bytes(length) % _MOST_ELEMENTS
        dtype = np.int64 if wide else np.int32
        offsets = self._memory((length + 1) * np.dtype(dtype).itemsize).view(dtype)
        offsets[0] = 0
        np.cumsum(lengths, out=offsets[1:])
        return pa.py_buffer(offsets), int(offsets[-1])


def _width(name: str) -> int:
    """About how many bytes one value of a column has."""
    if pa.types.is_integer(_TYPES[name]):
        return _TYPES[name].bit_width // 8
    return 0 if pa.types.is_null(_TYPES[name]) else 16


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # chunks may have dictionaries of their own
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _equal(ours: Any, theirs: Any) -> bool:
    """Whether two arrays of the same type are equal, floating-point numbers bit by bit."""
    if len(ours) != len(theirs):
        return False
    kind = ours.type
    if pa.types.is_floating(kind):
        as_integers = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return ours.view(as_integers).equals(theirs.view(as_integers))
    inside = _inside(ours)
    return all(map(_equal, inside, _inside(theirs))) if inside else ours.equals(theirs)


def _inside(array: Any) -> list[Any]:
    """What an array of lists or structures consists of; empty for any other."""
    if pa.types.is_struct(array.type):
        return [array.is_valid(), *array.flatten()]
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        return [pc.call_function("list_value_length", [array]), array.flatten()]
    return []


def _first_difference(ours: Any, theirs: Any) -> int:
    """The first row in which two unequal arrays of the same length differ."""
    begin, end = 0, len(ours)
    while end - begin > 1:
        middle = (begin + end) // 2
        if _equal(ours.slice(begin, middle - begin), theirs.slice(begin, middle - begin)):
            begin = middle
        else:
            end = middle
    return begin


def _words(schema: pa.Schema) -> str:
    text = ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)
    return text if len(text) <= 200 else f"{text[:199]}…"


KIND = ValuePayloads(ArrowTables())
