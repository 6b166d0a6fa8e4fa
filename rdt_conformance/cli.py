"""``rdt-conformance``: explains clauses, and does what can be done with reports once they are written.

Runs no transport and needs no Ray.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import rdt_conformance
from rdt_conformance import contract, explain
from rdt_conformance.faults_known import known_faults
from rdt_conformance.report import json_report, offline
from rdt_conformance.report.saving import ReportProblem
from rdt_conformance.verdict import Exit

UNUSABLE = 4
"""The exit status for a file that cannot be read or written, as pytest's for a wrong command line."""

_WORST_FIRST = (UNUSABLE, int(Exit.HARNESS_ERROR), int(Exit.BROKEN), int(Exit.INCONCLUSIVE))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments`, those of this process if None; returns the exit status."""
    options = make_parser()[0].parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of the command line, and that of each command by its name, from which the docs are made too."""
    parser = argparse.ArgumentParser(
        prog="rdt-conformance", description="Explains clauses, and works on the reports of rdt-conformance."
    )
    parser.add_argument("--version", action="version", version=f"rdt-conformance {rdt_conformance.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_clause(commands.add_parser)
    _add_judge(commands.add_parser)
    _add_report(commands.add_parser)
    return parser, commands.choices


def _add_clause(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add_parser(
        "clause",
        help="explain a clause of the contract: what, why, and what to do",
        description="Explains clauses of the contract: what each asks for, why, what users suffer if it is broken, "
        "what to do then, and transports that break it on purpose. pytest --rdt-clauses lists them all.",
        epilog="Exit status: 0 explained, 4 there is no such clause.",
    )
    parser.add_argument("ids", nargs="+", metavar="ID")
    parser.set_defaults(run=lambda options: _explain(options.ids))


def _explain(ids: Sequence[str]) -> int:
    try:
        clauses = [contract.as_meant(name) for name in ids]
    except contract.UnknownClauseError as problem:
        print(problem, file=sys.stderr)
        return UNUSABLE
    faults = known_faults()
    texts = [explain.as_text(entry, [fault for fault in faults if fault.clause == entry.id]) for entry in clauses]
    print("\n\n".join(texts))
    return 0


def _add_judge(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add_parser(
        "judge",
        help="judge again what a report holds, offline",
        description="Judges again what the checks of each report found, and compares that with what the report says.",
        epilog="Exit status: that of the verdict (0 conformant, 1 broken or a demand not met, 3 harness error, "
        "8 inconclusive), the worst of several; 3 if a report says something else than its own checks; 4 if a file "
        "cannot be used.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="report.json")
    parser.set_defaults(run=lambda options: _worst([_judge(path) for path in options.files]))


def _add_report(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add_parser(
        "report",
        help="draw the page of a report again, or put several side by side",
        description="Draws the page, the summary and the badge of one report again; of several, one page that puts "
        "them side by side, what differs first: several transports, engines or versions.",
        epilog="Exit status: 0 written, 4 a file cannot be used.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="report.json")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="where to write (default: beside a single report, rdt-report for several)",
    )
    parser.set_defaults(run=lambda options: _report(options.files, options.output))


def _report(paths: Sequence[Path], output: Path | None) -> int:
    from rdt_conformance.report import folder  # draws pages, which judging does not need

    try:
        reports = [(path, json_report.read(path)) for path in paths]
        if len(reports) == 1:
            page = folder.write_pages(output or paths[0].parent, reports[0][1])
        else:
            page = folder.write_comparison(output or Path("rdt-report"), reports)
    except ReportProblem as problem:
        print(problem, file=sys.stderr)
        return UNUSABLE
    print(page)
    return 0


def _judge(path: Path) -> int:
    try:
        document = json_report.read(path)
    except ReportProblem as problem:
        print(problem, file=sys.stderr)
        return UNUSABLE
    verdict = offline.judge(document)
    print(f"{path}: {document['target']['spec']}, {document['header']['created']}, {verdict.headline}")
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
