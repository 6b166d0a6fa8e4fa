"""Tell a leak from a cache: repeat, count, and repeat more of what still grows."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import psutil

from rdt_conformance.observe import proc
from rdt_conformance.observe.resources import (
    GPU_MEMORY,
    GPU_TENSORS,
    MEMORY,
    REGISTRATIONS,
    SHARED_MEMORY_FILES,
    TEMPORARY_FILES,
    Resources,
)
from rdt_conformance.observe.standing import EXIT_HANDLERS, FINALIZERS, LOGGERS

_MEMORY_NOISE = {MEMORY: 1 << 20, GPU_TENSORS: 1 << 20, GPU_MEMORY: 8 << 20}
"""By how many bytes each kind of memory may grow for reasons of the allocator's own. A GPU's driver hands out pieces of
two mebibytes at least."""
_FEWEST = 3
"""A leak is at least so many things: fewer can be something else that goes on in the process."""
_ENOUGH = 8
"""How many things should have leaked before their absence says that growth has ended."""
_LARGEST_CACHE = 1_000
"""Elements that a container may keep for later, in all processes together, or objects' worth of memory. Of what was not
watched until the end, only what has grown by more can be told from a cache that fills slowly."""
_USUAL_POOL = 64
"""Objects' worth of memory that a pool may come to hold little by little, where chance decides how many are in use at
once. Memory that has grown by no more than that is watched for so many times as many cycles as everything else:"""
_LONGER = 4
_MOST_THREADS = 2_000
_MOST_CHILDREN = 100
"""With more of them, other work on the machine would suffer."""
_PATIENCE = 1.0
"""Seconds in which something has to go away, if more is to be waited for."""

_USES_UP = dict.fromkeys(proc.DESCRIPTORS, "file descriptors") | {
    "threads": "threads",
    "child processes": "child processes",
    SHARED_MEMORY_FILES: "shared memory",
    TEMPORARY_FILES: "temporary space",
}
"""What there is less of when a kind grows, besides time and memory."""

_PHRASES = {
    f"{REGISTRATIONS} in {FINALIZERS}": "finalizers (weakref.finalize)",
    f"{REGISTRATIONS} in {EXIT_HANDLERS}": "functions to be called at exit (atexit)",
    f"{REGISTRATIONS} in {LOGGERS}": "loggers (logging.getLogger)",
    "sockets": "open sockets",
    "pipes": "open pipe ends",
    "memfds": "open memory files",
    MEMORY: "memory",
    GPU_TENSORS: "memory of tensors on GPUs",
    GPU_MEMORY: "memory in use on GPUs",
}


class Observer(Protocol):
    """What `growth` asks of a watch; a `Watch`, or one in another process."""

    def settled(self) -> Resources:
        """Collect garbage and count what stays."""
        ...


@dataclass(frozen=True)
class Leak:
    """A kind of thing that grows for as long as cycles are repeated."""

    kind: str
    """A kind of `Resources`, or ``registrations in PATH``."""
    per_cycle: float
    before: int
    after: int
    cycles: int
    """How many cycles lie between `before` and `after`."""
    examples: tuple[str, ...] = ()
    note: str = ""
    """Why it was not watched for longer, if something kept it from being."""

    @property
    def sentence(self) -> str:
        """One plain sentence."""
        is_memory = self.kind in _MEMORY_NOISE
        show = _megabytes if is_memory else str
        rate = f"{_megabytes(self.per_cycle)} per cycle" if is_memory else _per_cycle(self.per_cycle)
        text = f"{_PHRASES.get(self.kind, self.kind)} grew from {show(self.before)} to {show(self.after)}"
        text += f" over {self.cycles} cycles ({rate})"
        if self.examples:
            text += f", e.g. {', '.join(self.examples)}"
        return f"{text}; {self.note}" if self.note else text


@dataclass(frozen=True)
class Growth:
    """What repeated cycles did to a process."""

    leaks: list[Leak]
    steady: dict[str, int]
    """The last count of everything that does not leak."""
    cycles: int
    """How many cycles were judged, after those that warmed up."""
    judged: bool
    """False if the time was over before anything could be said."""


def growth(
    run_cycles: Callable[[int], None],
    watch: Observer,
    *,
    cycles: int,
    rounds: int = 4,
    most_cycles: int,
    deadline: float,
    payload_bytes: int = 0,
) -> Growth:
    """Repeat cycles and tell what leaks.

    After a warm-up come rounds of `cycles`, each followed by a count. What grew in most rounds is suspected, and ever
    more cycles are run until it stops growing (it was a cache or a pool that filled) or the bounds are reached while
    it still grows in proportion to the cycles (it is a leak). At the end, what goes away by itself is waited for.

    Memory is suspected if it grew in every round by more than half of what was sent, and leaks if that came to a
    mebibyte or more. What a GPU's driver tells comes in large pieces and is of all processes of the machine: it is
    suspected by its growth over all rounds, and only leaks if it stands still while no cycles are run.

    Args:
        run_cycles: runs that many cycles of the same kind, and leaves nothing in flight.
        watch: what to count with.
        cycles: how many make a round.
        rounds: how many rounds there are at least; two or more.
        most_cycles: bound for all cycles together, a few times as high for little memory; at least twice as many as
            fill the largest cache that is legal.
        deadline: bound in time, on the clock of ``time.monotonic``.
        payload_bytes: how many bytes a cycle sends; 0 does not judge memory.

    Raises:
        ValueError: fewer than two rounds.
        Exception: whatever `run_cycles` raises.
    """
    if rounds < 2:
        raise ValueError("growth can only be seen over two rounds or more")
    trial = _Trial(run_cycles, watch, cycles, deadline, payload_bytes)
    with _quick_collections():
        trial.run(cycles)
        while len(trial.marks) <= rounds and time.monotonic() < deadline:
            trial.run(cycles)
        if len(trial.marks) < 3:
            return Growth([], {}, trial.marks[-1].cycles - cycles, judged=False)
        trial.suspect()
        trial.run_until_clear(most_cycles)
        trial.wait_for_suspects()
    return trial.verdict()


class _Mark(NamedTuple):
    """The state of things after so many cycles."""

    cycles: int
    figures: dict[str, int]
    names: dict[str, tuple[str, ...]]
    spare: dict[str, float]


@dataclass
class _Trial:
    run_cycles: Callable[[int], None]
    watch: Observer
    cycles: int
    deadline: float
    payload_bytes: int
    marks: list[_Mark] = field(default_factory=list)
    """The first is taken after the warm-up."""
    suspects: dict[str, float] = field(default_factory=dict)
    """What may leak, and its growth per cycle in the first rounds."""
    memory_limit: float = 0
    note: str = ""

    def run(self, cycles: int) -> None:
        """Run cycles and count. What leaks may also slow down: past the deadline no further part of them begins."""
        done = 0
        while done < cycles and (not done or time.monotonic() < self.deadline):
            part = min(self.cycles, cycles - done)
            self.run_cycles(part)
            done += part
        self.marks.append(self._mark(done + (self.marks[-1].cycles if self.marks else 0)))

    def _mark(self, cycles: int) -> _Mark:
        resources = self.watch.settled()
        figures = resources.countable()
        if self.payload_bytes:
            figures |= resources.memories()
        if not self.marks:
            self.memory_limit = resources.counts.get(MEMORY, 0) + psutil.virtual_memory().available / 2
        spare = _spare(resources.counts, self.memory_limit) | {"time": self.deadline - time.monotonic()}
        return _Mark(cycles, figures, resources.names, spare)

    def suspect(self) -> None:
        """Suspect what grew in most rounds; the first only warms up further."""
        first, *later = self.marks[1:]
        for kind in self.marks[-1].figures:
            counts = [mark.figures.get(kind, 0) for mark in (first, *later)]
            steps = [after - before for before, after in itertools.pairwise(counts)]
            if kind in _MEMORY_NOISE:
                least = sum(steps) / len(steps) if kind == GPU_MEMORY else min(steps)
                suspected = least > self.payload_bytes * self.cycles / 2
            else:
                suspected = sum(steps) > 0 and 2 * sum(step > 0 for step in steps) > len(steps)
            if suspected:
                self.suspects[kind] = sum(steps) / (later[-1].cycles - first.cycles)

    def run_until_clear(self, most_cycles: int) -> None:
        """Run ever more cycles until nothing is suspected or a bound is reached."""
        chunk = self.cycles
        while self.suspects and (left := self._enough(most_cycles) - self.marks[-1].cycles) > 0:
            scarce, affordable = self._affordable()
            if affordable < min(left, self.cycles):
                self.note = f"it was not watched for longer because {scarce} would have run out"
                return
            chunk = min(2 * chunk, left, affordable)
            self.run(chunk)
            self._clear()

    def _enough(self, most_cycles: int) -> int:
        """After how many cycles what is suspected has been watched for long enough."""
        first, last = self.marks[0].figures, self.marks[-1].figures
        may_be_pool = all(
            kind in _MEMORY_NOISE and last.get(kind, 0) - first.get(kind, 0) < _USUAL_POOL * self.payload_bytes
            for kind in self.suspects
        )
        return most_cycles * (_LONGER if may_be_pool else 1)

    def _affordable(self) -> tuple[str, int]:
        """How many more cycles can be run without using up the machine, and what is the bound."""
        since, now = self._recent(), self.marks[-1]
        watched = {"time", "memory"} | {_USES_UP[kind] for kind in self.suspects if kind in _USES_UP}
        cycles = {
            what: int(max(left, 0) * (now.cycles - since.cycles) / (since.spare[what] - left))
            for what, left in now.spare.items()
            if what in watched and since.spare[what] > left
        }
        scarce = min(cycles, key=lambda what: cycles[what])  # there is always less time
        return scarce, cycles[scarce]

    def _recent(self) -> _Mark:
        """The mark from which half of all cycles or more have been run."""
        *earlier, latest = self.marks
        return next((mark for mark in reversed(earlier) if mark.cycles <= latest.cycles / 2), earlier[0])

    def _clear(self) -> None:
        """Clear what no longer grows as it did in the first rounds."""
        self.suspects = {kind: rate for kind, rate in self.suspects.items() if self._grows(kind, rate)}

    def _grows(self, kind: str, rate: float) -> bool:
        since, now = self._recent(), self.marks[-1]
        grew = now.figures.get(kind, 0) - since.figures.get(kind, 0)
        cycles = now.cycles - since.cycles
        if kind in _MEMORY_NOISE:
            return grew > self.payload_bytes * cycles / 2
        expected = rate * cycles
        return grew > 0 and (expected < _ENOUGH or grew >= expected / 2)

    def wait_for_suspects(self) -> None:
        """Count again for as long as suspects go away, so that what ends late is not called a leak."""
        give_up = time.monotonic() + _PATIENCE
        while self.suspects and time.monotonic() < give_up:
            time.sleep(0.02)  # no event tells that a thread, socket or file has gone
            earlier = self.marks.pop()
            self.marks.append(self._mark(earlier.cycles))
            idle = {kind: self.marks[-1].figures.get(kind, 0) - earlier.figures.get(kind, 0) for kind in self.suspects}
            if min(idle.values()) < 0:
                give_up = time.monotonic() + _PATIENCE
            if idle.get(GPU_MEMORY, 0) > 0:
                del self.suspects[GPU_MEMORY]  # others are at work on that GPU
            self._clear()

    def verdict(self) -> Growth:
        """What is still suspected leaks."""
        first, last = self.marks[0], self.marks[-1]
        found = [(self._leak(kind), rate) for kind, rate in self.suspects.items()]
        leaks = [
            leak
            for leak, rate in found
            if leak.per_cycle >= rate / 2 and leak.after - leak.before >= _MEMORY_NOISE.get(leak.kind, _FEWEST)
        ]
        decided = [leak for leak in leaks if not self._may_be_cache(leak)]
        kinds = {leak.kind for leak in leaks}
        # What lies inside a container that leaks need not be told as well.
        told = [leak for leak in decided if not any(is_inside(leak.kind, other) for other in kinds)]
        steady = {kind: count for kind, count in last.figures.items() if kind not in kinds}
        return Growth(told, steady, last.cycles - first.cycles, judged=bool(told) or not leaks)

    def _may_be_cache(self, leak: Leak) -> bool:
        if not self.note:
            return False
        is_memory = leak.kind in _MEMORY_NOISE
        largest = _LARGEST_CACHE * (self.payload_bytes if is_memory else 1)
        return (is_memory or leak.kind.startswith(REGISTRATIONS)) and leak.after - leak.before < largest

    def _leak(self, kind: str) -> Leak:
        first, last = self.marks[0], self.marks[-1]
        before, after, cycles = first.figures.get(kind, 0), last.figures.get(kind, 0), last.cycles - first.cycles
        # Several things can have one name: a file opened twice, threads of a pool.
        examples = list(Counter(last.names.get(kind, ())) - Counter(first.names.get(kind, ())))
        return Leak(kind, (after - before) / cycles, before, after, cycles, tuple(examples[-3:]), self.note)


@contextlib.contextmanager
def _quick_collections() -> Iterator[None]:
    """Keep what is already there out of garbage collections: with torch and Ray loaded each takes 0.1 s and more."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _spare(counts: dict[str, int], memory_limit: float) -> dict[str, float]:
    """How much is left of what a leak could use up; a part of everything is left to others."""
    spare: dict[str, float] = {
        "threads": _MOST_THREADS - counts.get("threads", 0),
        "child processes": _MOST_CHILDREN - counts.get("child processes", 0),
        "temporary space": psutil.disk_usage(tempfile.gettempdir()).free / 2,
    }
    if MEMORY in counts:
        spare["memory"] = memory_limit - counts[MEMORY]
    if psutil.LINUX:
        descriptors = sum(counts.get(kind, 0) for kind in proc.DESCRIPTORS)
        spare["file descriptors"] = 0.8 * psutil.Process().rlimit(psutil.RLIMIT_NOFILE)[0] - descriptors
    if os.path.isdir(proc.SHARED_MEMORY):
        spare["shared memory"] = psutil.disk_usage(proc.SHARED_MEMORY).free / 2
    return spare


def is_inside(kind: str, container: str) -> bool:
    """Whether a kind of registrations lies inside another one, and so need not be told as well."""
    return kind.startswith((f"{container}.", f"{container}[")) and kind.startswith(REGISTRATIONS)


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


def _per_cycle(rate: float) -> str:
    """A rate in words: one per cycle, 2 per cycle, one in every 3 cycles."""
    if rate < 0.75:
        return f"one in every {round(1 / rate)} cycles"
    return "one per cycle" if round(rate, 1) == 1 else f"{rate:.2g} per cycle"
