"""What transports of GPU memory are made of, by itself, as in `raw_libraries`: a library moves as many bytes.

The receiver's memory and the source's are on ``cuda:0`` of their processes, which may be one GPU or two.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from rdt_conformance.bench.ceilings import FromSource, RawSource
from rdt_conformance.bench.contents import Load
from rdt_conformance.bench.gpu_ceilings import OnGpu, come_to_rest
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.raw_libraries import PATIENCE, RECEIVER, SOURCE, STORE, NixlReader, NixlSource

_TAG = 0


class FromOther(FromSource, OnGpu):
    """A contender whose bytes lie in the source's process."""

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self.reach(source, self._load)


class GpuNixl(FromOther):
    """One read by NIXL."""

    raw_source = NixlSource

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        buffer = None if self._new else self._buffer
        self._reader = NixlReader(self._load, self.ask("introduce"), self.ask("address"), buffer)

    def fill(self, tensor: torch.Tensor) -> None:
        """See `OnGpu.fill`."""
        self._reader.read(tensor)

    def close(self) -> None:
        """See `loop.Contender`."""
        self._reader.close()
        super().close()


class NcclSource(RawSource):
    """Sends by torch.distributed."""

    def join(self, port: int) -> None:
        """Become one of a group, and send for the first time."""
        self._group = _group(STORE("127.0.0.1", port, is_master=False, timeout=PATIENCE), SOURCE)
        self.send()

    def send(self) -> None:
        """Send all, and wait until the GPU has done it."""
        self._group.send([self.bytes], RECEIVER, _TAG).wait()
        come_to_rest(self.bytes)

    def leave(self) -> None:
        """Be no longer one of the group."""
        self._group.abort()


class RawNccl(FromOther):
    """One send and receive by NCCL through torch.distributed, of which the send is begun just before the clock."""

    raw_source = NcclSource

    def __init__(self, source: Remote, load: Load) -> None:
        super().__init__(source, load)
        self._store = STORE("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        self._remote.begin(self._source, "join", self._store.port)
        try:
            self._group = _group(self._store, RECEIVER)
            self.fill(self._buffer)
            come_to_rest(self._buffer)
        finally:
            self._remote.end()

    def before(self, turn: int) -> None:
        """See `OnGpu.before`."""
        super().before(turn)
        self._remote.begin(self._source, "send")

    def fill(self, tensor: torch.Tensor) -> None:
        """See `OnGpu.fill`."""
        self._group.recv([tensor], SOURCE, _TAG).wait()

    def after(self) -> None:
        """See `OnGpu.after`."""
        self._remote.end()

    def close(self) -> None:
        """See `loop.Contender`. NCCL's abort waits for the other side's."""
        self._remote.begin(self._source, "leave")
        self._group.abort()
        self._remote.end()
        super().close()


def _group(store: Any, rank: int) -> Any:
    """One side of a group of two, connected."""
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    kind: Any = dist.ProcessGroupNCCL
    options = kind.Options()
    options._timeout = PATIENCE
    options.global_ranks_in_group = [RECEIVER, SOURCE]
    group = kind(store, rank, 2, options)
    group.eager_connect_single_device(device)  # else torch warns that sending makes a communicator of its own
    return group


RAW_GPU_LIBRARIES: dict[str, type[FromOther]] = {"raw:NIXL": GpuNixl, "raw:NCCL": RawNccl}
"""Those that move memory of GPUs, by the names that ``--rdt-peers`` takes."""
