"""Tensors out of any nested value, and back in.

The CPU part of a value travels with the task's reply or arguments; its tensors travel through the transport, in the
order in which they are met. The same tensor object met twice travels once.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from rdt_conformance import pickling
from rdt_conformance.engines.reference.errors import ProtocolError
from rdt_conformance.engines.reference.refs import Ref


class _TensorPickler(pickling.CloudPickler):
    """Pickles a value with its tensors replaced by their number."""

    def __init__(self, file: io.BytesIO, data_type: type) -> None:
        super().__init__(file)
        self._data_type = data_type
        self.tensors: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if isinstance(obj, Ref):
            raise TypeError("a ref cannot be part of an RDT object; pass it as an argument or return it on its own")
        # Exactly the registered type, as in Ray: a subclass (nn.Parameter) travels with the CPU data.
        if type(obj) is not self._data_type:
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            number = self._numbers[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return number


class _TensorUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[Any]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        if not isinstance(self._tensors, Sequence):
            raise ProtocolError(f"received a {type(self._tensors).__name__}, not a list of tensors")
        if pid >= len(self._tensors):
            raise ProtocolError(f"received {len(self._tensors)} tensors, and the value has more")
        return self._tensors[pid]


def take_out(value: Any, data_type: type) -> tuple[bytes, list[Any]]:
    """Split `value` into its CPU part, pickled, and its tensors in order of appearance."""
    file = io.BytesIO()
    pickler = _TensorPickler(file, data_type)
    pickler.dump(value)
    return file.getvalue(), pickler.tensors


def put_back(skeleton: bytes, tensors: Sequence[Any]) -> Any:
    """The value again, with `tensors` in the places they were taken from."""
    return _TensorUnpickler(io.BytesIO(skeleton), tensors).load()
