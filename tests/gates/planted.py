"""Reference transports that are worse than they are by a known amount, for the gate to find."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

from reference_transports.cross_memory import CrossMemoryTransport
from reference_transports.inline import InlineTransport
from reference_transports.shared_memory import SharedMemoryTransport
from reference_transports.tcp import TcpTransport

SECONDS_PER_BYTE = "RDT_GATES_SECONDS_PER_BYTE"
"""The environment variable that names the file in which this number is."""


class _Slow:
    """Waits for as long as it is told for each byte that it has received."""

    def __init__(self) -> None:
        super().__init__()
        self._per_byte = float(Path(os.environ[SECONDS_PER_BYTE]).read_text())

    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        tensors = super().recv_multiple_tensors(*args)  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]
        until = time.perf_counter() + self._per_byte * sum(tensor.nbytes for tensor in tensors)
        while time.perf_counter() < until:
            pass
        return tensors


class SlowInline(_Slow, InlineTransport):
    """See `_Slow`."""


class SlowSharedMemory(_Slow, SharedMemoryTransport):
    """See `_Slow`."""


class SlowCrossMemory(_Slow, CrossMemoryTransport):
    """See `_Slow`."""


class SlowTcp(_Slow, TcpTransport):
    """See `_Slow`."""


class CopiesOnceMore(CrossMemoryTransport):
    """Copies what it has received."""

    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        return [tensor.clone() for tensor in super().recv_multiple_tensors(*args)]


class DescribesTwice(SharedMemoryTransport):
    """Has metadata that are twice as large."""

    def extract_tensor_transport_metadata(self, *args: Any) -> Any:
        metadata: Any = super().extract_tensor_transport_metadata(*args)
        metadata.padding = bytes(len(pickle.dumps(metadata)))
        return metadata
