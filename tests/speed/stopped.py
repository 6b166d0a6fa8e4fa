"""A contender in processes of its own, which are stopped while others have their turn: some have threads that never
rest, and would disturb whoever is measured."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from .contenders import Options, Stages, Transport
from .source import PATIENCE_SECONDS, Load, Peer, answer, die_with


class Stopped:
    """A transport, measured by a process that is stopped between its turns, and so is its source's."""

    def __init__(self, target: str, cores: Collection[int], load: Load, options: Options) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_measure, args=(theirs, os.getpid(), target, cores, load, options))
        self._process.start()
        theirs.close()
        self._pids = [self._process.pid or 0]
        try:
            self._pids = self._answer()
        except BaseException:
            self.kill()
            raise
        self._send(signal.SIGSTOP)

    def cycle(self, turn: int, thorough: bool) -> Stages:
        """See `Contender.cycle`."""
        self._send(signal.SIGCONT)
        try:
            self._pipe.send((turn, thorough))
            return self._answer()
        finally:
            self._send(signal.SIGSTOP)

    def close(self) -> None:
        """End both processes."""
        self._send(signal.SIGCONT)
        self._pipe.close()
        self._process.join(PATIENCE_SECONDS)
        if self._process.is_alive():
            self.kill()

    def kill(self) -> None:
        """End them, whatever they are doing."""
        self._send(signal.SIGKILL)
        self._process.join()

    def _send(self, number: int) -> None:
        for pid in self._pids if self._process.is_alive() else ():
            with suppress(ProcessLookupError):  # the source's process dies with the other
                os.kill(pid, number)

    def _answer(self) -> Any:
        return answer(self._pipe, "its own process")


def _measure(pipe: Connection, parent: int, target: str, cores: Collection[int], load: Load, options: Options) -> None:
    """Do a cycle for each message, until the other end is closed."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that measures
    torch.set_num_threads(1)
    peer = Peer(cores)
    try:
        contender = Transport(target, peer, load, options)
        pipe.send(([os.getpid(), peer.pid], ""))
        while True:
            pipe.send((contender.cycle(*pipe.recv()), ""))
    except EOFError:
        pass
    except Exception:
        pipe.send((None, traceback.format_exc()))
    finally:
        peer.close()
