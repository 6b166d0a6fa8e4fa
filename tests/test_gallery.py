"""The gallery of real reports: what it keeps, what it leaves out, and what it says of both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import made_benchmarks
import pytest
from made_reports import FakeTarget, passing, write

from rdt_conformance.report import folder, json_report, offline
from tests.gallery import __main__ as gallery


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gallery, "GALLERY", tmp_path)
    return tmp_path


def made(place: Path, target: str) -> Path:
    """A report in the gallery."""
    path = write(place, passing(), target=FakeTarget(target), benchmarks=made_benchmarks.some(speed=1e9, seed=1))
    folder.write_pages(place, json_report.read(path))
    return place


def test_the_list_tells_of_every_transport_and_the_page_compares_those_that_there_are(place: Path) -> None:
    made(place / "tcp", "tcp")
    made(place / "ray-nixl", "ray:NIXL")
    (place / "gloo").mkdir()
    (place / "gloo" / gallery.WHY_NOT).write_text("it did not end within 1200 s\n")
    (place / "nixl").mkdir()
    (place / "nixl" / "report.json").write_text("{")
    told = gallery._index().read_text()
    assert "| `tcp` | cpu | [report](tcp/report.html), [summary](tcp/summary.md) | Conformant, " in told
    assert "| `ray:NIXL` | cpu | [report](ray-nixl/report.html), " in told
    assert "| `gloo` | cpu |  | could not be made: it did not end within 1200 s |" in told
    assert "| `nixl` | cpu |  | cannot be used any more: report.json: cut off or damaged at line 1" in told
    assert "| `inline` | cpu |  | not made yet |" in told
    assert "| `cuda-ipc` | cuda |  | not made yet |" in told
    page = (place / "comparison.html").read_text()
    assert 'href="ray-nixl/report.html"' in page and "Latency by size" in page


def test_a_report_that_tells_where_it_was_made_is_not_kept(place: Path) -> None:
    fine = made(place / "tcp", "tcp")
    gallery._demand_discretion(fine)
    (fine / "summary.md").write_text(f"File {gallery.ROOT}/x.py")
    with pytest.raises(gallery.NotMade, match=r"its summary\.md tells what is private: "):
        gallery._demand_discretion(fine)


def test_whoever_judges_a_report_of_the_gallery_again_comes_to_the_same_verdict() -> None:
    reports = sorted(gallery.GALLERY.glob("*/report.json"))
    assert len(reports) > 10
    for path in reports:
        document = json_report.read(path)
        assert offline.differences(document, offline.judge(document)) == [], path


def test_a_transport_that_is_not_in_it_is_one_clear_line() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.gallery", "udp"], cwd=gallery.ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith(
        "python -m tests.gallery: error: not in the gallery: udp; choose from "
    )
