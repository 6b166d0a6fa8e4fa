"""A transport as a contender: its source is in another process, its receiver in this one, and Ray has no part in it."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

from ray.experimental.rdt.collective_tensor_transport import CollectiveTensorTransport

from rdt_conformance import pickling
from rdt_conformance.bench.contents import FAR, Contents, Load, read_first, tensors_of
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
    """The source's side, in its process: a load that is spread evenly over a number of objects.

    Args:
        spec: the target, as on the command line.
        held_against: it may be another version of one that is there already.
        load: what is carried.
        objects: in so many objects.
    """

    def __init__(self, spec: str, held_against: bool, load: Load, objects: int = 1) -> None:
        self._transport = build(spec, held_against)
        self._contents = Contents(load)
        self._tensors = tensors_of(load)
        self._parts = parts(self._tensors, objects)
        self._metadata: list[Any] = []
        self._cpu_before = 0.0

    def describe(self, ids: list[str], turn: int) -> tuple[list[bytes], float, float]:
        """Fill the tensors and describe the objects, and the seconds of both. Pickling is part of the price."""
        began = _clock()
        self._contents.fill(self._tensors, turn)
        filled = _clock()
        self._cpu_before = _cpu()
        extract = self._transport.extract_tensor_transport_metadata
        self._metadata = [extract(obj_id, part) for obj_id, part in zip(ids, self._parts, strict=True)]
        described = [pickling.dumps(metadata) for metadata in self._metadata]
        return described, filled - began, _clock() - filled

    def send(self, described: list[bytes], comms: list[bytes]) -> None:
        """Take part in two-sided transfers of all objects."""
        for part, metadata, comm in zip(self._parts, described, comms, strict=True):
            self._transport.send_multiple_tensors(part, pickling.loads(metadata), pickling.loads(comm))

    def collect(self, ids: list[str]) -> tuple[float, float]:
        """Free the objects; the seconds that it took, and the processor time since they were described."""
        cpu, began = _cpu() - self._cpu_before, _clock()
        for obj_id, metadata, part in zip(ids, self._metadata, self._parts, strict=True):
            self._transport.garbage_collect(obj_id, metadata, part)
        return _clock() - began, cpu


class Receiving:
    """The receiver's side, in any process. It begins every fetch before it waits for the first, as Ray's get does."""

    def __init__(self, spec: str, held_against: bool, load: Load, objects: int = 1) -> None:
        self.transport = build(spec, held_against)
        self.one_sided: bool = self.transport.is_one_sided()
        self._name = self.transport.tensor_transport_backend()
        self._ends = (None, None) if self.one_sided else (stand_in("source"), stand_in("receiver"))
        self._contents = Contents(load)
        self._buffers = tensors_of(load) if load.buffers else None
        self._parts = parts(self._buffers, objects) if self._buffers is not None else [None] * objects
        self._requests: list[Any] = []
        self._arguments: list[Any] = []
        self.received: list[Any] = []

    def begin(self, ids: list[str], described: list[bytes]) -> list[bytes]:
        """Begin to fetch; for a two-sided transport, get ready, and return what the source needs for its part.

        Raises:
            NeedsRayError: it is one of Ray's that send within a collective group, which only Ray can make.
        """
        comms = [self._communicator() for _ in ids]
        metadata = [pickling.loads(each) for each in described]
        self._arguments = list(zip(ids, metadata, comms, self._parts, strict=True))
        if not self.one_sided:
            return [pickling.dumps(comm) for comm in comms]
        self._requests = [self.transport.fetch_multiple_tensors(*each) for each in self._arguments]
        return []

    def _communicator(self) -> Any:
        try:
            return self.transport.get_communicator_metadata(*self._ends, self._name)
        except ValueError as error:
            if isinstance(self.transport, CollectiveTensorTransport):
                raise NeedsRayError(f"it needs a group of actors, and Ray has no part in this: {error}") from error
            raise

    def end(self) -> None:
        """Wait for all."""
        if self.one_sided:
            arrived = [self.transport.wait_fetch_complete(request) for request in self._requests]
        else:
            # Without the argument where there are no buffers, as Ray calls it: two-sided transports need not have it.
            calls = [each if each[-1] is not None else each[:-1] for each in self._arguments]
            arrived = [self.transport.recv_multiple_tensors(*each) for each in calls]
        self._requests = self._arguments = []
        self.received = arrived[0] if len(arrived) == 1 else [tensor for part in arrived for tensor in part]

    def fetch(self, ids: list[str], described: list[bytes]) -> None:
        """Both, for a one-sided transport in another process."""
        self.begin(ids, described)
        self.end()

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        received, self.received = self.received, []
        wrong = self._contents.wrong(received, turn)
        if self._buffers is not None and not wrong:
            # What stays there must not pass for what is to come, in this turn or in any of the next thousands.
            self._contents.fill(self._buffers, turn + FAR)
        return wrong


class TransportContender:
    """A transport, from a source in another process to this one.

    Args:
        spec: the target, as on the command line.
        source: the other process.
        load: what is carried.
        objects: in so many objects, which are in flight together.
        held_against: the target may be another version of one that is there already.
    """

    def __init__(self, spec: str, source: Remote, load: Load, *, objects: int = 1, held_against: bool = False) -> None:
        self._receiving = Receiving(spec, held_against, load, objects)
        self._remote = source
        self._source = source.make(Source, spec, held_against, load, objects)
        self._prefix = secrets.token_hex(20)
        self._objects = objects
        self.counters: dict[str, float] = {}
        self.waits_for_others = False
        """Whether a cycle is only over when what goes on meanwhile is."""

    def cycle(self, turn: int) -> Sample:
        """See `loop.Contender`."""
        ids = [f"{self._prefix}{turn:08x}{number:08x}" for number in range(self._objects)]
        cpu, began = _cpu(), _clock()
        described, create, extract = self._remote.call(self._source, "describe", ids, turn)
        with ExitStack() as others:
            self.begin_others(others, ids, described)
            told = _clock()
            comms = self._receiving.begin(ids, described)
            fetched = _clock()
            if comms:
                self._remote.begin(self._source, "send", described, comms)
                others.callback(self._remote.end)
            begun = _clock()
            self._receiving.end()
            arrived = _clock()
            read_first(self._receiving.received)
            read = _clock()
            cpu = _cpu() - cpu
        waited = _clock() - read if self.waits_for_others else 0.0
        collect, source_cpu = self._remote.call(self._source, "collect", ids)
        ended = _clock()
        self.counters["metadata_bytes"] = (sum(map(len, described)) + sum(map(len, comms))) / self._objects
        return Sample(
            create=create,
            extract=extract,
            control=(told - began - create - extract) + (begun - fetched) + (ended - read - waited - collect),
            fetch=fetched - told,
            wait=arrived - begun + waited,
            first_read=read - arrived,
            collect=collect,
            whole=ended - began,
            cpu=cpu + source_cpu,
        )

    def begin_others(self, others: ExitStack, ids: list[str], described: list[bytes]) -> None:
        """Begin what goes on while this process receives; `others` ends it."""

    def wrong(self, turn: int) -> str:
        """See `loop.Contender`."""
        return self._receiving.wrong(turn)

    def close(self) -> None:
        """See `loop.Contender`."""
        self._receiving.received = []
        self._remote.forget(self._source)


def parts(tensors: list[Any], objects: int) -> list[list[Any]]:
    """Tensors, spread evenly over objects in their order."""
    each = len(tensors) // objects
    return [tensors[number * each : (number + 1) * each] for number in range(objects)]
