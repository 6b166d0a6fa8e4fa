"""What a report becomes outside of its page: the summary, the badge, the JUnit file, the page of GitHub's job."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import made_pages
import pytest
from made_reports import FakeTarget, failing, passing, write
from suite_run import run_suite

from rdt_conformance.report import badge, folder, json_report, markdown
from rdt_conformance.results import CheckResult

BROKEN = [*passing(besides=["G4"]), failing("G4")]
CRASHED = [*passing(besides=["G4"]), CheckResult("t", "local", ("G4",), "error", reason="boom")]
UNKNOWN = [*passing(besides=["G4"]), CheckResult("t", "local", ("G4",), "not run", reason="never in flight")]

SUMMARY = """\
## ✕ Not conformant: `mine:Mine`

1 MUST clause broken (G4)

| | |
|---|---|
| level | 3, keeps order; in the way of level 4: G4 (broken) |
"""

FAILURE = """\
### ✕ G4 MUST broken on local

**Promised:** garbage_collect of one object leaves other live objects that share its tensors or their storage ready to \
be fetched.

**Happened:** The destination received other bytes than the source had.

<details><summary>6 steps</summary>

```text
               source (source)            driver (owner)        sink (destination)
"""


def test_the_summary_of_a_broken_transport(tmp_path: Path) -> None:
    text = markdown.render(json_report.read(write(tmp_path, BROKEN)))
    assert text.startswith(SUMMARY)
    assert FAILURE in text
    assert "```text\npytest --transport=mine:Mine --rdt-engine=local --rdt-profile=quick --rdt-seed=7 -k" in text
    assert re.search(r"^\| gc \| 1 \| +10 ?\|", text, re.MULTILINE)


def test_the_summary_of_what_nobody_knows(tmp_path: Path) -> None:
    text = markdown.render(json_report.read(write(tmp_path, UNKNOWN)))
    assert text.startswith("## ? Inconclusive: `mine:Mine`\n")
    assert "### ? Unknown\n\n- G4: never in flight\n" in text


def test_forty_failures_make_a_summary_that_can_be_read(tmp_path: Path) -> None:
    page = made_pages.forty_failures(tmp_path)
    text = (page.parent / "summary.md").read_text()
    assert text.count("\n### ") == markdown.FULL_ENTRIES
    assert text.count("broken on local") == 40
    assert len(text) < 100_000


def test_hostile_texts_do_not_become_markup(tmp_path: Path) -> None:
    nasty = "<b>x</b> | `a` [l](http://x) ![i](y) @user #1 _a_ a_b\n## head\n```\nend"
    broken = [*passing(besides=["G4"]), failing("G4", happened=nasty, replay=f"pytest ```` {nasty}")]
    text = markdown.render(json_report.read(write(tmp_path, broken, target=FakeTarget("``x`y"))))
    assert text.startswith("## ✕ Not conformant: ``` ``x`y ```\n")
    assert r"**Happened:** \<b\>x\</b\> \| \`a\` \[l\](http://x) \!\[i\](y) \@user \#1 \_a\_ a_b \#\# head" in text
    assert "\n`````text\npytest ````" in text


@pytest.mark.parametrize(
    ("results", "whole", "message", "colour"),
    [
        (passing(), True, "conformant, level 5", "brightgreen"),
        (BROKEN, True, "not conformant, level 3", "red"),
        (BROKEN, False, "not conformant", "red"),
        (CRASHED, True, "no verdict, level 3", "lightgrey"),
        (UNKNOWN, True, "inconclusive, level 3", "yellow"),
        (passing(), False, "partial run", "yellow"),
        ([], True, "inconclusive", "yellow"),
    ],
)
def test_the_badge(results: list[CheckResult], whole: bool, message: str, colour: str, tmp_path: Path) -> None:
    document = json_report.read(write(tmp_path, results, selected_all=whole))
    assert json.loads(badge.as_json(document)) == {
        "schemaVersion": 1,
        "label": "rdt conformance",
        "message": message,
        "color": colour,
    }
    picture = ET.fromstring(badge.as_svg(document))
    assert picture.get("aria-label") == f"rdt conformance: {message}"
    assert int(picture.get("width", 0)) < 300


def test_a_job_of_github_shows_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    markdown.show_in_github("## now")
    markdown.show_in_github("## again")
    assert page.read_text() == "before\n## now\n## again\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "such"))
    markdown.show_in_github("nowhere")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    markdown.show_in_github("nowhere")


def test_a_run_leaves_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "page.md"))
    target = "reference_transports.faulty.integrity:IgnoresStrides"
    options = ["--rdt-profile=quick", "--rdt-seed=1", "--rdt-engine=local", "--junitxml=junit.xml"]
    # Not forked: the process that forks was started before the environment was changed.
    run = run_suite(tmp_path, target, *options, "-k", "any_tensors_arrive or freed")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "report.json", "report.html", "summary.md", "badge.svg", "badge.json",
    }  # fmt: skip
    assert f"report: {tmp_path}/report/report.html" in run.printed
    assert (tmp_path / "page.md").read_text() == (tmp_path / "report" / "summary.md").read_text() + "\n"
    found = ET.parse(tmp_path / "junit.xml").findall("./testsuite/properties/*")
    assert {entry.get("name"): entry.get("value") for entry in found} == {
        "rdt_transport": target,
        "rdt_verdict": run.report["verdict"]["headline"],
        "rdt_exit_status": "1",
        "rdt_level": "none",
        "rdt_engines": "local",
        "rdt_profile": "quick",
        "rdt_seed": "1",
    }
    twins = [f["twin"] for check in run.report["checks"] for f in check["failures"] if f["twin"]]
    assert twins, "of what Hypothesis tried, something went well"
    assert all(twin["example"] and twin["history"] for twin in twins)


def test_a_folder_gets_everything(tmp_path: Path) -> None:
    document = json_report.read(write(tmp_path / "first", BROKEN))
    page = folder.write(tmp_path / "new" / "place", document)
    assert page == tmp_path / "new" / "place" / "report.html"
    assert json_report.read(page.with_name("report.json")) == document
    assert (tmp_path / "new" / "place" / "badge.json").read_text() == badge.as_json(document)
