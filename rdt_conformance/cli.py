"""``rdt-conformance``: what can be done with reports once they are written. Runs no transport and needs no Ray."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import rdt_conformance
from rdt_conformance.report import json_report, offline
from rdt_conformance.report.json_report import ReportProblem
from rdt_conformance.verdict import Exit

UNUSABLE = 4
"""The exit status for a file that cannot be read or written, as pytest's for a wrong command line."""

_WORST_FIRST = (UNUSABLE, int(Exit.HARNESS_ERROR), int(Exit.BROKEN), int(Exit.INCONCLUSIVE))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments`, those of this process if None; returns the exit status."""
    parser = argparse.ArgumentParser(prog="rdt-conformance", description="Works on the reports of rdt-conformance.")
    parser.add_argument("--version", action="version", version=f"rdt-conformance {rdt_conformance.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_judge(commands.add_parser)
    options = parser.parse_args(arguments)
    return options.run(options)


def _add_judge(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add_parser(
        "judge",
        help="judge again what a report holds, offline",
        description="Judges again what the checks of each report found, and compares that with what the report says.",
        epilog="Exit status: that of the verdict (0 conformant, 1 broken, 3 harness error, 8 inconclusive), the worst "
        "of several; 3 if a report says something else than its own checks; 4 if a file cannot be used.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="report.json")
    parser.set_defaults(run=lambda options: _worst([_judge(path) for path in options.files]))


def _judge(path: Path) -> int:
    try:
        document = json_report.read(path)
    except ReportProblem as problem:
        print(problem, file=sys.stderr)
        return UNUSABLE
    verdict = offline.judge(document)
    print(f"{path}: {verdict.headline}")
    differing = offline.differences(document, verdict)
    if differing:
        wrote = document["header"]["suite_version"]
        print(
            f"{path}: does not agree with its own checks; written by {wrote}, judged by {rdt_conformance.__version__}"
        )
        print("".join(f"  {line}\n" for line in differing), end="")
        return int(Exit.HARNESS_ERROR)
    print(f"{path}: agrees, judged again from {len(document['checks'])} checks on {len(document['clauses'])} clauses")
    return int(verdict.exit_status)


def _worst(statuses: Sequence[int]) -> int:
    return next((status for status in _WORST_FIRST if status in statuses), int(Exit.CONFORMANT))


if __name__ == "__main__":
    sys.exit(main())
