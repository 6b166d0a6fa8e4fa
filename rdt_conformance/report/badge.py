"""A badge with the verdict and the level reached: as SVG, and as JSON for shields.io's endpoint badges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from rdt_conformance.report.view import outcome
from rdt_conformance.verdict import Exit

SVG_NAME = "badge.svg"
JSON_NAME = "badge.json"
LABEL = "rdt conformance"

_COLOURS = {
    "pass": ("brightgreen", "#17693f"),
    "deviation": ("yellowgreen", "#4f6b12"),
    "fail": ("red", "#ad1f14"),
    "warn": ("lightgrey", "#5c5b56"),
    "unknown": ("yellow", "#7a5600"),
}
"""By the key of the outcome: as shields.io calls it, and ours."""
_LETTER = 6.6
"""The width of a letter."""
_SVG = Markup(
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {message}">'
    "<title>{label}: {message}</title>"
    '<clipPath id="round"><rect width="{width}" height="20" rx="3"/></clipPath>'
    '<g clip-path="url(#round)"><rect width="{left}" height="20" fill="#3c3b37"/>'
    '<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
    '<text x="7" y="14" textLength="{label_length}">{label}</text>'
    '<text x="{text}" y="14" textLength="{message_length}">{message}</text></g></svg>\n'
)


def message(document: Mapping[str, Any]) -> str:
    """``conformant, level 4``."""
    verdict = document["verdict"]
    partial = verdict["partial"] and verdict["exit_status"] == Exit.INCONCLUSIVE
    word = "partial run" if partial else outcome(document).word
    return f"{word}, level {verdict['level']['number']}" if verdict["level"] else word


def as_svg(document: Mapping[str, Any]) -> str:
    """The badge as a picture of its own."""
    label_length, message_length = len(LABEL) * _LETTER, len(message(document)) * _LETTER
    left, right = label_length + 14, message_length + 14
    return _SVG.format(
        label=LABEL,
        message=message(document),
        colour=_COLOURS[outcome(document).key][1],
        width=f"{left + right:.0f}",
        left=f"{left:.0f}",
        right=f"{right:.0f}",
        text=f"{left + 7:.0f}",
        label_length=f"{label_length:.0f}",
        message_length=f"{message_length:.0f}",
    )


def as_json(document: Mapping[str, Any]) -> str:
    """The badge as shields.io asks for it."""
    colour = _COLOURS[outcome(document).key][0]
    return json.dumps({"schemaVersion": 1, "label": LABEL, "message": message(document), "color": colour}) + "\n"
