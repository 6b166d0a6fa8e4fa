"""Processes that have a transport each, and do what they are told on threads named as Ray names its lanes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from rdt_conformance.locate import locate

SOON = 60.0
"""Seconds within which whatever should happen has happened; to start a process with CUDA takes ten of them."""
MAIN, SYSTEM, ERROR = "main", "_ray_system", "_ray_system_error"
Recipe = Callable[[], list[Any]]
"""Makes tensors, the same ones in every process. A function of a module, or a partial of one."""


class Inside:
    """What an actor has: the first argument of all that it is told to do."""

    def __init__(self, transport: str) -> None:
        made: Any = locate(transport)
        self.transport: Any = made()
        self.objects: dict[str, list[Any]] = {}
        self.received: dict[str, list[Any]] = {}
        self.requests: dict[str, Any] = {}


class Actor:
    """A process.

    Args:
        transport: ``module:Class``.
        gpus: numbers of those that it sees, as in ``CUDA_VISIBLE_DEVICES``.
        environment: further variables.
    """

    def __init__(self, transport: str, gpus: str = "0", **environment: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        environment["CUDA_VISIBLE_DEVICES"] = gpus
        self.process = context.Process(target=_live, args=(theirs, transport, environment), daemon=True)
        self.process.start()
        theirs.close()
        self._numbers = itertools.count()
        self._expected: dict[int, Future[Any]] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self.process.pid is not None
        return self.process.pid

    def begin(self, function: Callable[..., Any], *args: Any, lane: str = SYSTEM) -> Future[Any]:
        """Tell it to call a function with what it has, and the arguments."""
        number, future = next(self._numbers), Future[Any]()
        self._expected[number] = future
        self._pipe.send((number, lane, function, args))
        return future

    def do(self, function: Callable[..., Any], *args: Any, lane: str = SYSTEM) -> Any:
        """The same, and wait for the result."""
        return self.begin(function, *args, lane=lane).result(SOON)

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join(SOON)
        self._pipe.close()

    def _listen(self) -> None:
        try:
            while True:
                number, result, error = self._pipe.recv()
                future = self._expected.pop(number)
                future.set_exception(error) if error is not None else future.set_result(result)
        except (OSError, EOFError, TypeError):
            for future in list(self._expected.values()):
                future.set_exception(EOFError("the actor is dead"))


def hiring(transport: str) -> Iterator[Callable[..., Actor]]:
    """Gives what makes actors with this transport, and ends them afterwards: for a fixture to yield from."""
    hired: list[Actor] = []

    def hire(gpus: str = "0", **environment: str) -> Actor:
        hired.append(Actor(transport, gpus, **environment))
        return hired[-1]

    yield hire
    for actor in hired:
        actor.end()


def _live(pipe: Any, transport: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    inside = Inside(transport)
    lanes = {name: ThreadPoolExecutor(1) for name in (MAIN, SYSTEM, ERROR)}
    answering = threading.Lock()

    def answer(number: int, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        result, failure = None, None
        try:
            result = function(inside, *args)
        except BaseException as error:
            failure = error.with_traceback(None)
        with answering:
            pipe.send((number, result, failure))

    while True:
        try:
            number, lane, function, args = pipe.recv()
        except EOFError:
            os._exit(0)
        lanes[lane].submit(answer, number, function, args)


def extract(inside: Inside, obj_id: str, recipe: Recipe) -> Any:
    """Make tensors, and have them described."""
    inside.objects[obj_id] = recipe()
    return inside.transport.extract_tensor_transport_metadata(obj_id, inside.objects[obj_id])


def send(inside: Inside, obj_id: str, metadata: Any, communicator: Any) -> None:
    """Send an object."""
    inside.transport.send_multiple_tensors(inside.objects[obj_id], metadata, communicator)


def receive(inside: Inside, obj_id: str, metadata: Any, communicator: Any, buffers: Recipe | None = None) -> None:
    """Receive an object, and keep it."""
    target = None if buffers is None else buffers()
    received = inside.transport.recv_multiple_tensors(obj_id, metadata, communicator, target)
    assert target is None or all(got is buffer for got, buffer in zip(received, target, strict=True))
    inside.received[obj_id] = received


def abort(inside: Inside, obj_id: str, communicator: Any) -> None:
    """Abort a transfer."""
    inside.transport.abort_transport(obj_id, communicator)


def collect(inside: Inside, obj_id: str, metadata: Any) -> None:
    """Let go of an object at its source."""
    inside.transport.garbage_collect(obj_id, metadata, inside.objects.pop(obj_id))


def drop(inside: Inside, obj_id: str) -> None:
    """Let go of what was received."""
    inside.requests.pop(obj_id, None)
    del inside.received[obj_id]


def differences(inside: Inside, obj_id: str, recipe: Recipe) -> list[str]:
    """What is wrong with what was received."""
    return compare(inside.received[obj_id], recipe())


def compare(received: list[Any], expected: list[Any]) -> list[str]:
    """In what the two differ."""
    if len(received) != len(expected):
        return [f"{len(received)} tensors instead of {len(expected)}"]
    found = []
    for index, (got, want) in enumerate(zip(received, expected, strict=True)):
        if (got.shape, got.dtype, got.device.type) != (want.shape, want.dtype, want.device.type):
            found.append(
                f"{index}: {got.shape, got.dtype, got.device} instead of {want.shape, want.dtype, want.device}"
            )
        elif not torch.equal(plain_bytes(got), plain_bytes(want).to(got.device)):
            found.append(f"{index}: other bytes ({want.dtype}, {tuple(want.shape)})")
    return found


def plain_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The contents, whatever the dtype and layout."""
    flat = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8, device=tensor.device)


def allocated(inside: Inside) -> int:
    """Bytes that torch has given out."""
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def settled(condition: Callable[[], bool]) -> bool:
    """Whether it comes true in time. To ask an actor takes a moment."""
    give_up = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > give_up:
            return False
    return True


def in_use(inside: Inside) -> int:
    """Bytes of the GPU that are in use, by anybody."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free
