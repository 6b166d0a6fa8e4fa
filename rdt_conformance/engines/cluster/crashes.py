"""What a process of an actor wrote as it crashed."""

from __future__ import annotations

from pathlib import Path

from rdt_conformance.engines.untyped import the_ray

_MOST_LINES = 20
_CRASH, _SIGNAL, _NOT_THE_STACK = "Fatal Python error", "*** SIG", "Extension modules:"
_OF_RAY = (":job_id:", ":actor_name:", ":task_name:")
"""How lines begin by which Ray tells logs apart."""


def last_words(pid: int) -> str:
    """The end of what a process that has ended wrote: from the signal on and where its thread was, if that is there.

    Empty if nothing is known: it ran on another machine, or wrote nothing.
    """
    node = the_ray()._private.worker.global_worker.node
    if node is None:
        return ""
    logs = Path(node.get_logs_dir_path()).glob(f"worker-*-{pid}.err")
    path = max(logs, key=lambda log: log.stat().st_mtime, default=None)  # an earlier process may have had the number
    return "" if path is None else "\n".join(_of_the_crash(path.read_text(errors="replace").splitlines()))


def _of_the_crash(lines: list[str]) -> list[str]:
    lines = [line for line in lines if line.strip() and not line.startswith(_OF_RAY)]
    for mark in (_CRASH, _SIGNAL):
        at = next((number for number, line in enumerate(lines) if line.startswith(mark)), None)
        if at is not None:
            end = next((n for n, line in enumerate(lines) if n > at and line.startswith(_NOT_THE_STACK)), len(lines))
            return lines[at : min(end, at + _MOST_LINES)]
    return lines[-_MOST_LINES:]
