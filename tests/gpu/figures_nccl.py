"""Figures of the NCCL transport: how fast it is, and how long an abort takes."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import gpu_recipes as recipes
import torch
import torch.distributed as dist
from gpu_actors import ERROR, SOON, Actor, Inside, abort, collect, differences, drop, extract, receive, send, settled
from gpu_measuring import GIB, MIB, NCCL, TURNS, WARMING, actors, rate, summary

from reference_transports._nccl import Communicator
from reference_transports._pairs import TransferMetadata


def in_turns(inside: Inside, obj_id: str, metadata: Any, transfers: list[Any], rank: int) -> Any:
    """Take turns with the transport and with torch.distributed, each as soon as the last is done; the seconds of each.

    So both sides begin at about the same time, which is when the one before has ended for them.
    """
    (tensor,) = inside.objects.get(obj_id) or inside.received[obj_id]
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(2 * len(transfers)):
        start = time.monotonic()
        if turn % 2:
            (dist.recv if rank else dist.send)(tensor, 1 - rank)
            torch.cuda.synchronize()
        elif rank:
            inside.transport.recv_multiple_tensors(obj_id, metadata, transfers[turn // 2], [tensor])
        else:
            inside.transport.send_multiple_tensors([tensor], metadata, transfers[turn // 2])
        seconds[turn % 2].append(time.monotonic() - start)
    return tuple(each[WARMING:] for each in seconds)


def join(inside: Inside, rank: int, port: int) -> None:
    """Make torch's process group."""
    address, device = f"tcp://127.0.0.1:{port}", torch.device("cuda", 0)
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=2, device_id=device)


def peer_copies(inside: Inside, size: int) -> list[float]:
    """Seconds of a copy from one GPU to another within a process."""
    there, here = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{index}") for index in (0, 1))
    seconds = []
    for _ in range(TURNS + WARMING):
        began = time.monotonic()
        here.copy_(there)
        for index in (0, 1):
            torch.cuda.synchronize(index)
        seconds.append(time.monotonic() - began)
    return seconds[WARMING:]


def nccl() -> dict[str, Any]:
    """The transport beside torch.distributed, between the same two processes, into the same buffers."""
    result: dict[str, Any] = {}
    with actors(NCCL, "0", "1", "0,1") as (source, destination, both):
        for future in [actor.begin(join, rank, 29555) for rank, actor in enumerate((source, destination))]:
            future.result(SOON)
        for size in (MIB, 64 * MIB, 256 * MIB, GIB):
            recipe = partial(recipes.numbers, size)
            metadata = source.do(extract, "load", recipe)
            transfer = TransferMetadata("pair")
            halves = [source.begin(send, "load", metadata, transfer)]
            halves.append(destination.begin(receive, "load", metadata, transfer, partial(recipes.zeros, size)))
            for half in halves:
                half.result(SOON)
            transfers = [TransferMetadata("pair") for _ in range(TURNS + WARMING)]
            halves = [
                actor.begin(in_turns, "load", metadata, transfers, rank)
                for rank, actor in enumerate((source, destination))
            ]
            own, raw = halves[1].result(SOON)
            halves[0].result(SOON)
            copies = summary(both.do(peer_copies, size))
            own, raw = summary(own), summary(raw)
            result[f"{size // MIB} MiB"] = {
                "transport": rate(size, own),
                "torch.distributed": rate(size, raw),
                "peer copy": rate(size, copies),
                "x torch.distributed": round(raw["median_us"] / own["median_us"], 3),
                "x peer copy": round(copies["median_us"] / own["median_us"], 3),
                "exact": destination.do(differences, "load", recipe) == [],
            }
            source.do(collect, "load", metadata)
            destination.do(drop, "load")
    return result


def stop_when_agreed(inside: Inside) -> None:
    """Be stopped at the worst moment: the other side's kernel is about to start, and this side's will not."""
    move = Communicator.move

    def moving(self: Communicator, buffers: Any) -> None:
        Communicator.move = move
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread does not go on meanwhile
        move(self, buffers)

    Communicator.move = moving


def stopped(actor: Actor) -> bool:
    """Whether it is."""
    return Path(f"/proc/{actor.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def aborts() -> dict[str, Any]:
    """Abort a transfer of which one side is stopped: how long each side takes, and whether the next one is exact."""
    size, found = 256 * MIB, []
    recipe = partial(recipes.numbers, size)
    with actors(NCCL, "0", "1") as pair:
        metadata = pair[0].do(extract, "load", recipe)
        exact_transfer(pair, metadata, recipe)
        for turn in range(20):
            still, live = pair[turn % 2], pair[1 - turn % 2]
            when = "before it agreed" if turn // 2 % 2 else "when it had agreed"
            if when == "before it agreed":
                os.kill(still.pid, signal.SIGSTOP)
            else:
                still.do(stop_when_agreed)
            transfer, halves = both_halves(pair, metadata)
            assert settled(lambda: stopped(still)), "it was not stopped"  # noqa: B023
            time.sleep(0.3)  # let the live side get as far as it does
            began = time.monotonic()
            live.do(abort, "load", transfer, lane=ERROR)
            error = halves[1 - turn % 2].exception(SOON)
            live_seconds = time.monotonic() - began
            late = still.begin(abort, "load", transfer, lane=ERROR)
            began = time.monotonic()
            os.kill(still.pid, signal.SIGCONT)
            late.result(SOON)
            errors = [error, halves[turn % 2].exception(SOON)]
            found.append(
                {
                    "stopped": ["source", "destination"][turn % 2],
                    "when": when,
                    "live side, s": round(live_seconds, 3),
                    "stopped side after it went on, s": round(time.monotonic() - began, 3),
                    "errors": [type(each).__name__ for each in errors],
                    "next is exact": exact_transfer(pair, metadata, recipe),
                }
            )
    worst = max(max(each["live side, s"], each["stopped side after it went on, s"]) for each in found)
    return {"worst, s": worst, "all exact": all(each["next is exact"] for each in found), "turns": found}


def both_halves(pair: list[Actor], metadata: Any) -> tuple[TransferMetadata, list[Future[Any]]]:
    """Start a transfer."""
    transfer = TransferMetadata("pair")
    sent = pair[0].begin(send, "load", metadata, transfer)
    return transfer, [sent, pair[1].begin(receive, "load", metadata, transfer)]


def exact_transfer(pair: list[Actor], metadata: Any, recipe: Any) -> bool:
    """Do a transfer, and look."""
    for half in both_halves(pair, metadata)[1]:
        half.result(SOON)
    exact = pair[1].do(differences, "load", recipe) == []
    pair[1].do(drop, "load")
    return exact
