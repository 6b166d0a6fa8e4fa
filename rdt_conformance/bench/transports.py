"""A transport as a contender: its source is in another process, its receiver in this one, and Ray has no part in it."""

from __future__ import annotations

import secrets
import time
from functools import lru_cache
from typing import Any

from rdt_conformance import pickling
from rdt_conformance.bench.contents import Contents, Load, read_first, tensors_of
from rdt_conformance.bench.loop import Sample
from rdt_conformance.bench.process import Remote
from rdt_conformance.bench.versions import transport_of
from rdt_conformance.engines.reference.errors import NeedsRayError, is_for_lack_of_ray
from rdt_conformance.engines.reference.handles import stand_in
from rdt_conformance.target import resolve

_clock = time.perf_counter
_cpu = time.process_time


@lru_cache(maxsize=16)
def _class_of(spec: str, held_against: bool) -> type[Any]:
    return transport_of(spec) if held_against else resolve(spec).transport_class


def build(spec: str, held_against: bool) -> Any:
    """A new instance of the transport that a target names; of another version of it, if something is held against it.

    Raises:
        NeedsRayError: it cannot be built without Ray.
    """
    try:
        return _class_of(spec, held_against)()
    except Exception as error:
        if is_for_lack_of_ray(error):
            raise NeedsRayError(f"it calls into Ray, which has no part in this: {error}") from error
        raise


class Source:
    """The source's side, in its process."""

    def __init__(self, spec: str, held_against: bool, load: Load) -> None:
        self._transport = build(spec, held_against)
        self._contents = Contents(load)
        self._tensors = tensors_of(load)
        self._metadata: Any = None
        self._cpu_before = 0.0

    def describe(self, obj_id: str, turn: int) -> tuple[bytes, float, float]:
        """Fill the tensors and describe them; the metadata, and the seconds of both. Pickling is part of the price."""
        began = _clock()
        self._contents.fill(self._tensors, turn)
        filled = _clock()
        self._cpu_before = _cpu()
        self._metadata = self._transport.extract_tensor_transport_metadata(obj_id, self._tensors)
        described = pickling.dumps(self._metadata)
        return described, filled - began, _clock() - filled

    def send(self, metadata: bytes, communicator: bytes) -> None:
        """Take part in a two-sided transfer."""
        self._transport.send_multiple_tensors(self._tensors, pickling.loads(metadata), pickling.loads(communicator))

    def collect(self, obj_id: str) -> tuple[float, float]:
        """Free the object; the seconds that it took, and the processor time since the object was described."""
        cpu, began = _cpu() - self._cpu_before, _clock()
        self._transport.garbage_collect(obj_id, self._metadata, self._tensors)
        return _clock() - began, cpu


class TransportContender:
    """The receiver's side.

    Args:
        spec: the target, as on the command line.
        source: the other process.
        load: what is carried.
        held_against: the target may be another version of one that is there already.
    """

    def __init__(self, spec: str, source: Remote, load: Load, *, held_against: bool = False) -> None:
        self._transport = build(spec, held_against)
        self._name = self._transport.tensor_transport_backend()
        self._one_sided = self._transport.is_one_sided()
        self._ends = (None, None) if self._one_sided else (stand_in("source"), stand_in("receiver"))
        self._remote = source
        self._source = source.make(Source, spec, held_against, load)
        self._contents = Contents(load)
        self._buffers = tensors_of(load) if load.buffers else None
        self._received: Any = None
        self._ids = secrets.token_hex(20)
        self.counters: dict[str, float] = {}

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`."""
        obj_id = f"{self._ids}{turn:016x}"
        cpu, began = _cpu(), _clock()
        described, create, extract = self._remote.call(self._source, "describe", obj_id, turn)
        told = _clock()
        metadata = pickling.loads(described)
        comm = self._transport.get_communicator_metadata(*self._ends, self._name)
        if self._one_sided:
            request = self._transport.fetch_multiple_tensors(obj_id, metadata, comm, self._buffers)
            fetched = begun = _clock()
            self._received = self._transport.wait_fetch_complete(request)
        else:
            fetched = _clock()
            self._remote.begin(self._source, "send", described, pickling.dumps(comm))
            begun = _clock()
            # Without the argument where there are no buffers, as Ray calls it: two-sided transports need not have it.
            buffers = () if self._buffers is None else (self._buffers,)
            self._received = self._transport.recv_multiple_tensors(obj_id, metadata, comm, *buffers)
        arrived = _clock()
        read_first(self._received)
        read = _clock()
        cpu = _cpu() - cpu
        if not self._one_sided:
            self._remote.end()
        collect, source_cpu = self._remote.call(self._source, "collect", obj_id)
        ended = _clock()
        self.counters["metadata_bytes"] = len(described) + len(pickling.dumps(comm))
        return Sample(
            create=create,
            extract=extract,
            control=(told - began - create - extract) + (begun - fetched) + (ended - read - collect),
            fetch=fetched - told,
            wait=arrived - begun,
            first_read=read - arrived,
            collect=collect,
            whole=ended - began,
            cpu=cpu + source_cpu,
        )

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        received, self._received = self._received, None
        wrong = self._contents.wrong(received, turn)
        if self._buffers is not None and not wrong:
            self._contents.fill(self._buffers, turn + 1)  # what stays there must not pass for what is to come
        return wrong

    def close(self) -> None:
        """See `loop.Contender`."""
        self._received = self._buffers = None
        self._remote.forget(self._source)
