"""Figures of the one-sided GPU transports: seconds of extract and receive, in the processes where they happen."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gpu_recipes as recipes
import torch
from gpu_actors import Actor, Inside, differences, drop
from gpu_measuring import CUDA_IPC, GIB, MIB, NIXL, ONE_GPU, TURNS, WARMING, actors, rate, summary
from ray.experimental.rdt.nixl_tensor_transport import NixlTensorTransport

from rdt_conformance.bench.raw_libraries import nixl_agent

LOADS = {
    "1 MiB": partial(recipes.numbers, MIB),
    "1 GiB": partial(recipes.numbers, GIB),
    "1 of 512,000 bytes": partial(recipes.split, 1000, 1),
    "1,000 of one storage": partial(recipes.split, 1000),
    "1,000 of one allocation": partial(recipes.alike, 1000),
}
PLACES = {"same GPU": ("0", "0"), "another GPU": ("0", "1")}


def timed_extract(inside: Inside, obj_id: str) -> tuple[Any, float]:
    """The metadata, as they travel, and the seconds that it takes to make them."""
    began = time.monotonic()
    metadata = pickle.dumps(inside.transport.extract_tensor_transport_metadata(obj_id, inside.objects["load"]))
    return metadata, time.monotonic() - began


def timed_receive(inside: Inside, obj_id: str, metadata: bytes, buffers: bool) -> float:
    """The seconds until the tensors are there."""
    target = inside.objects["buffers"] if buffers else None
    communicator = inside.transport.get_communicator_metadata(None, None, "")
    began = time.monotonic()
    received = inside.transport.recv_multiple_tensors(obj_id, pickle.loads(metadata), communicator, target)
    inside.received[obj_id] = received
    return time.monotonic() - began


def keep(inside: Inside, name: str, recipe: Callable[[], Any]) -> None:
    """Make tensors, for later."""
    inside.objects[name] = recipe()
    torch.cuda.synchronize()


def let_go(inside: Inside, obj_id: str, metadata: bytes) -> None:
    """What Ray calls when an object is out of scope; its tensors are still in use."""
    inside.transport.garbage_collect(obj_id, pickle.loads(metadata), inside.objects["load"])


def one_sided(
    pair: list[Actor], recipe: Any, buffers: bool = False, between: Callable[[], float] | None = None
) -> tuple[list[float], list[float]]:
    """Seconds of extract and receive together, of what the source keeps; and those of what is done in between."""
    source, destination = pair
    seconds, others = [], []
    for turn in range(TURNS + WARMING):
        obj_id = f"object {turn}"
        metadata, extracting = source.do(timed_extract, obj_id)
        seconds.append(extracting + destination.do(timed_receive, obj_id, metadata, buffers))
        if not turn:
            assert destination.do(differences, obj_id, recipe) == []
        destination.do(drop, obj_id)
        source.do(let_go, obj_id, metadata)
        others += [] if between is None else [between()]
    return seconds[WARMING:], others[WARMING:]


def cuda_ipc() -> dict[str, Any]:
    """Extract and receive of small and large objects, of one tensor and of many."""
    with actors(CUDA_IPC, "0", "0") as pair:
        result: dict[str, Any] = {}
        for name, recipe in LOADS.items():
            pair[0].do(keep, "load", recipe)
            result[name] = summary(one_sided(pair, recipe)[0])
    one = result["1 of 512,000 bytes"]["median_us"]
    result["1 GiB x 1 MiB"] = round(result["1 GiB"]["median_us"] / result["1 MiB"]["median_us"], 2)
    for name in ("1,000 of one storage", "1,000 of one allocation"):
        result[f"{name} x 1"] = round(result[name]["median_us"] / one, 2)
    return result


def raw_offer(inside: Inside) -> Any:
    """Register the load with an agent of NIXL's own."""
    (tensor,) = inside.objects["load"]
    agent = inside.requests["agent"] = nixl_agent()
    inside.requests["registered"] = agent.register_memory([tensor])
    return agent.get_agent_metadata(), (tensor.data_ptr(), tensor.nbytes, 0)


def raw_prepare(inside: Inside, offered: Any) -> None:
    """Register the buffer, and get to know the other agent."""
    agent = inside.requests["agent"] = nixl_agent()
    inside.requests["registered"] = agent.register_memory(inside.objects["buffers"])
    inside.requests["name"] = agent.add_remote_agent(offered[0])
    inside.requests["there"] = agent.get_xfer_descs([offered[1]], "VRAM")


def raw_read(inside: Inside) -> float:
    """The seconds of one read."""
    agent = inside.requests["agent"]
    began = time.monotonic()
    here = agent.get_xfer_descs(inside.objects["buffers"])
    handle = agent.initialize_xfer("READ", here, inside.requests["there"], inside.requests["name"])
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    seconds = time.monotonic() - began
    assert state == "DONE", state
    agent.release_xfer_handle(handle)
    return seconds


def raw_end(inside: Inside) -> None:
    """Give it all back."""
    agent = inside.requests.pop("agent")
    if "name" in inside.requests:
        agent.remove_remote_agent(inside.requests.pop("name"))
    agent.deregister_memory(inside.requests.pop("registered"))


class RaysNixl(NixlTensorTransport):
    """That of Ray, but for the name of its agent, for which Ray would have to run."""

    def _make_nixl_agent(self, backend: str) -> Any:
        return nixl_agent()


def nixl() -> dict[str, Any]:
    """The transport beside a raw read of registered memory, and beside Ray's own; into target buffers."""
    result: dict[str, Any] = {}
    for place, gpus in PLACES.items():
        if torch.cuda.device_count() < len({*gpus}):
            result[place] = ONE_GPU
            continue
        with actors(NIXL, *gpus) as pair, actors("figures_one_sided:RaysNixl", *gpus) as rays:
            for size in (MIB, 64 * MIB, GIB):
                recipe, buffers = partial(recipes.numbers, size), partial(recipes.zeros, size)
                for source, destination in (pair, rays):
                    source.do(keep, "load", recipe)
                    destination.do(keep, "buffers", buffers)
                pair[1].do(raw_prepare, pair[0].do(raw_offer))
                own, raw = map(summary, one_sided(pair, recipe, True, lambda: pair[1].do(raw_read)))
                for actor in reversed(pair):
                    actor.do(raw_end)
                theirs = summary(one_sided(rays, recipe, True)[0])
                result[f"{size // MIB} MiB, {place}"] = {
                    "transport": rate(size, own),
                    "raw": rate(size, raw),
                    "Ray's": rate(size, theirs),
                    "x raw": round(raw["median_us"] / own["median_us"], 3),
                    "x Ray's": round(theirs["median_us"] / own["median_us"], 3),
                }
                # At once, since the next may take longer than there is time.
                print(place, size // MIB, "MiB", own, raw, theirs, file=sys.stderr, flush=True)
    return result
