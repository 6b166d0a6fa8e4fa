"""Loads of Arrow's tables. They are written in place, as no user of Arrow would: every turn sends other contents."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def empty(shape: tuple[int, ...], dtype: str) -> pa.Table:
    """A table of one column with anything in it, over memory of its own.

    Args:
        shape: how many rows it has, and nothing else.
        dtype: their type, as numpy calls it.
    """
    (rows,) = shape
    memory = np.empty(rows, dtype)
    column = pa.Array.from_buffers(pa.from_numpy_dtype(memory.dtype), rows, [None, pa.py_buffer(memory)])
    return pa.table({"values": column})


def form_of(table: pa.Table) -> tuple[tuple[int, ...], str]:
    """The number of rows and the type of the first column, as numpy calls it; of no other table are there loads."""
    if table.num_columns != 1:
        return table.shape, "columns"
    return (table.num_rows,), np.dtype(table.schema.field(0).type.to_pandas_dtype()).name


def bytes_of(table: pa.Table) -> NDArray[np.uint8]:
    """The bytes of its one column: those in memory themselves if they are in one piece."""
    width = table.schema.field(0).type.bit_width // 8
    pieces = [
        np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width)
        for chunk in table.column(0).chunks
        if len(chunk)
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.uint8), *pieces])
