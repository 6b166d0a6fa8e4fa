"""The report that people open: one HTML file that needs nothing else, made of the templates in ``reports/html``."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import rdt_conformance
from rdt_conformance.ladder import LADDER
from rdt_conformance.paths import data_folder
from rdt_conformance.report import view
from rdt_conformance.report.charts import svg
from rdt_conformance.report.comparison import Comparison
from rdt_conformance.report.diagram_svg import as_svg
from rdt_conformance.report.view import RunView
from rdt_conformance.sources import sources
from rdt_conformance.words import count, listed

FILE_NAME = "report.html"
COMPARISON_NAME = "comparison.html"
LONGEST = 600
"""Characters of a text that are shown at once; some transports raise pages."""


def render_run(document: Mapping[str, Any]) -> str:
    """The page of one run.

    Args:
        document: what `rdt_conformance.report.json_report.read` returned, or `build`.
    """
    return _render("run.html.j2", run=RunView(document), ladder=LADDER)


def render_comparison(comparison: Comparison) -> str:
    """The page of several runs side by side."""
    counted = (view.FAIL, view.DEVIATION, view.WARN, view.UNKNOWN, view.PASS)
    version = rdt_conformance.__version__
    return _render("comparison.html.j2", comparison=comparison, ladder=LADDER, counted=counted, version=version)


def _render(template: str, **shown: object) -> str:
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    return (
        _templates()
        .get_template(template)
        .render(
            style=Markup(style), script=Markup(script), style_hash=_digest(style), script_hash=_digest(script), **shown
        )
    )


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(data_folder("reports") / "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(anchor=view.anchor, listed=listed, size=_size, sources=sources)
    environment.globals.update(
        shown=view.shown,
        worst=view.worst,
        legend=view.LEGEND,
        as_svg=as_svg,
        chart_svg=svg.as_svg,
        count=count,
        longest=LONGEST,
    )
    return environment


def _asset(name: str) -> str:
    return (data_folder("reports") / "html" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The digest by which the page's own policy knows its style and its script, so that no other one is obeyed."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _size(number: int | None) -> str:
    """``24.0 GiB``."""
    return "unknown" if number is None else f"{number / 2**30:,.1f} GiB"
