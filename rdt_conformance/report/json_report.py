"""``report.json``: the verdict with everything it was drawn from, under the schema in ``reports/schema``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

import rdt_conformance
from rdt_conformance import faults_known
from rdt_conformance.deviations import Deviations
from rdt_conformance.faults_known import Fault
from rdt_conformance.paths import data_folder
from rdt_conformance.report.saving import ReportProblem, save
from rdt_conformance.results import CheckResult
from rdt_conformance.verdict import ClauseResult, Rung, Verdict

if TYPE_CHECKING:
    from rdt_conformance.target import Target

FORMAT = "rdt-conformance-report"
VERSION = 3
FILE_NAME = "report.json"


def write(directory: Path, document: Mapping[str, Any]) -> Path:
    """Write ``report.json`` into `directory`, which is made if need be; an older one there is replaced in one step.

    Args:
        directory: where the report goes.
        document: what `build` returned.

    Returns:
        The path of the file.

    Raises:
        ReportProblem: the directory cannot be made or written to.
    """
    path = directory / FILE_NAME
    save(path, json.dumps(document, indent=1) + "\n")
    return path


def build(
    verdict: Verdict,
    target: Target,
    results: Sequence[CheckResult],
    environment: Mapping[str, Any],
    benchmarks: Sequence[Mapping[str, Any]] = (),
    deviations: Deviations | None = None,
    required: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole report, as it is written and as it is read again.

    Args:
        verdict: what was judged.
        target: the transport.
        results: what the verdict was drawn from.
        environment: `rdt_conformance.environment.environment`, and the run's ``seed``, ``profile`` and ``engines``.
        benchmarks: each a `rdt_conformance.bench.results.CellResult` as JSON-ready data.
        deviations: those that the user's file lists; None if there is none.
        required: what else the user asks for.

    Raises:
        ReportProblem: it would break its own schema.
    """
    faults, alarms = faults_known.known()
    body = {
        "header": {
            "format": FORMAT,
            "version": VERSION,
            "suite_version": rdt_conformance.__version__,
            "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "environment": dict(environment),
        "target": _target(target),
        "verdict": verdict_json(verdict),
        "clauses": clauses_json(verdict),
        "checks": [result.to_json() for result in results],
        "benchmarks": list(benchmarks),
        "deviations": deviations and deviations.to_json(),
        "required": list(required),
        "faults": [_fault(fault) for fault in faults],
        "alarms": alarms,
    }
    try:
        # Through JSON and back, so that what is digested and checked is what a reader will see.
        document = json.loads(json.dumps(body, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ReportProblem(f"no report: a result cannot be told in JSON (a harness error): {error}") from error
    document["footer"] = footer(document)
    if problem := _schema_problem(document):
        raise ReportProblem(f"no report: it would break its own schema (a harness error) {problem}")
    return document


def read(path: Path) -> dict[str, Any]:
    """Read a report that can be trusted to be whole; `CheckResult.from_json` reads its ``checks``.

    Raises:
        ReportProblem: no such file, empty, cut off, edited, of another format version, or not a report at all.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ReportProblem(f"{path}: not a report of rdt-conformance, it is not even text") from error
    except OSError as error:
        raise ReportProblem(f"{path}: cannot be read: {error.strerror}") from error
    if not text.strip():
        raise ReportProblem(f"{path}: empty; no run finished writing it")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("<"):
            raise ReportProblem(f"{path}: the page of a report; name the report.json beside it") from error
        raise ReportProblem(f"{path}: cut off or damaged at line {error.lineno}; run the suite again") from error
    except (ValueError, RecursionError) as error:
        raise ReportProblem(f"{path}: not a report of rdt-conformance, it holds what none would") from error
    if problem := _header_problem(document) or _schema_problem(document) or _footer_problem(document):
        raise ReportProblem(f"{path}: {problem}")
    return document


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """The section ``verdict``."""
    return {
        "exit_status": int(verdict.exit_status),
        "headline": verdict.headline,
        "partial": verdict.partial,
        "engines": list(verdict.engines),
        "level": _rung(verdict.level),
        "next_level": _rung(verdict.next_level),
        "next_blocked_by": [asdict(obstacle) for obstacle in verdict.next_blocked_by],
        "warnings": [f"{r.clause.id} SHOULD broken on {r.engine}: {r.reason}" for r in verdict.warnings],
        "deviations": [_deviation(result) for result in verdict.deviations],
        "unmet": list(verdict.unmet),
        "exposure": None if verdict.exposures is None else [thing.to_json() for thing in verdict.exposures],
        "harness_errors": [asdict(error) for error in verdict.harness_errors],
        "counts": asdict(verdict.counts),
    }


def clauses_json(verdict: Verdict) -> list[dict[str, Any]]:
    """The section ``clauses``."""
    return [_clause(rows) for rows in verdict.by_clause().values()]


def _target(target: Target) -> dict[str, Any]:
    return {
        "spec": target.spec,
        "capabilities": target.capabilities.to_json(),
        "facts": [{"name": fact.name, "value": fact.value, "learnt_from": fact.learnt_from} for fact in target.facts],
    }


def _fault(fault: Fault) -> dict[str, Any]:
    return {"clause": fault.clause, "name": fault.name, "mistake": fault.mistake, "tried": fault.tried}


def _rung(rung: Rung | None) -> dict[str, Any] | None:
    return None if rung is None else {"number": rung.number, "name": rung.name}


def _clause(rows: Sequence[ClauseResult]) -> dict[str, Any]:
    clause = rows[0].clause
    return {
        "id": clause.id,
        "area": clause.area.value,
        "level": clause.level.value,
        "sentence": clause.sentence,
        "source": clause.source,
        "suffers": clause.suffers,
        "applies": clause.applies.value,
        "engines": sorted(clause.engines),
        "since": clause.since,
        "untested": clause.untested,
        "results": [
            {
                "engine": row.engine,
                "status": row.status.value,
                "reason": row.reason,
                "checks": list(row.checks),
                "hidden_by": list(row.hidden_by),
            }
            for row in rows
        ],
    }


def _deviation(result: ClauseResult) -> dict[str, Any]:
    assert result.deviation is not None, result
    entry = result.deviation.to_json()
    return {**entry, "engine": result.engine, "level": result.clause.level.value, "happened": result.reason}


def footer(document: Mapping[str, Any]) -> dict[str, Any]:
    """The proof that a document is whole, drawn from everything in it but a footer."""
    body = {key: value for key, value in document.items() if key != "footer"}
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
    return {
        "complete": True,
        "clauses": len(document["clauses"]),
        "checks": len(document["checks"]),
        "digest": f"sha256:{hashlib.sha256(canonical).hexdigest()}",
    }


def _header_problem(document: Any) -> str:
    header = document.get("header") if isinstance(document, dict) else None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return "not a report of rdt-conformance"
    if header.get("version") != VERSION:
        wrote = header.get("suite_version", "another version")
        return f"format {header.get('version')}, written by rdt-conformance {wrote}; this one reads format {VERSION}"
    return ""


def _schema_problem(document: Mapping[str, Any]) -> str:
    schema_file = data_folder("reports") / "schema" / f"report-{VERSION}.json"
    schema = json.loads(schema_file.read_text(encoding="utf-8"))
    error = best_match(Draft202012Validator(schema).iter_errors(document))
    if error is None:
        return ""
    # A message quotes the offending part, which can be the whole document.
    message = " ".join(error.message.split())
    return f"at {error.json_path}: {message if len(message) <= 160 else f'… {message[-159:]}'}"


def _footer_problem(document: Mapping[str, Any]) -> str:
    return "" if document["footer"] == footer(document) else "edited after the run: it does not match its own footer"
