"""Everything that a run leaves in its report's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rdt_conformance.report import badge, html, json_report, markdown
from rdt_conformance.report.comparison import Comparison
from rdt_conformance.report.saving import ReportProblem, save


def write(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write the report and all that is drawn from it: page, summary and badge.

    Args:
        folder: where it all goes; made if need be. What an earlier run left there is replaced.
        document: what `rdt_conformance.report.json_report.build` returned.

    Returns:
        The path of the page.

    Raises:
        ReportProblem: the folder cannot be written to, or a page cannot be drawn, which is a harness error. The report
            itself is written first.
    """
    json_report.write(folder, document)
    return write_pages(folder, document)


def write_pages(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write what is drawn from a report, and not the report itself.

    Returns:
        The path of the page.

    Raises:
        ReportProblem: as `write`.
    """
    save(folder / markdown.FILE_NAME, markdown.render(document))
    save(folder / badge.SVG_NAME, badge.as_svg(document))
    save(folder / badge.JSON_NAME, badge.as_json(document))
    return _save_page(folder / html.FILE_NAME, lambda: html.render_run(document))


def write_comparison(folder: Path, reports: Sequence[tuple[Path, Mapping[str, Any]]]) -> Path:
    """Write the page that puts several reports side by side.

    Args:
        folder: where it goes.
        reports: where each report lies, and its document.

    Returns:
        The path of the page.

    Raises:
        ReportProblem: as `write`.
    """
    return _save_page(folder / html.COMPARISON_NAME, lambda: html.render_comparison(Comparison(reports, folder)))


def _save_page(path: Path, draw: Callable[[], str]) -> Path:
    try:
        page = draw()
    except Exception as error:  # the report itself is worth more than its page
        raise ReportProblem(f"{path}: not written (a harness error): {type(error).__name__}: {error}") from error
    save(path, page)
    return path
