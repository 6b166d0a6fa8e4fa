"""The pages, looked at without a browser: whole, tidy, self-contained, and nothing that they show can break out."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import made_pages
import pytest
from made_pages import HOSTILE, PAGES, RUNS
from made_reports import failing, forge, passing, write

from rdt_conformance import cli
from rdt_conformance.contract import CLAUSES
from rdt_conformance.power import PART
from rdt_conformance.report import folder, html, json_report, view
from rdt_conformance.report.saving import ReportProblem
from rdt_conformance.report.view import RunView

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """What is in a page, and whether it is well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.headings: list[int] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.raw = {"style": "", "script": ""}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        assert len(told) == len(attrs), attrs
        self.tags[tag] += 1
        self.attributes |= told.keys()
        if identity := told.get("id"):
            self.ids[identity] += 1
        if tag == "a":
            self.links.append(told["href"] or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.raw:
            self.raw[self._open[-1]] += data
        else:
            self.text += data


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Page]:
    text = PAGES[request.param](tmp_path_factory.mktemp(request.param)).read_text(encoding="utf-8")
    return request.param, text, Page(text)


def test_every_id_is_there_once_and_every_link_within_the_page_leads_to_one(page: tuple[str, str, Page]) -> None:
    _, _, found = page
    assert set(found.ids.values()) == {1}
    assert {link[1:] for link in found.links if link.startswith("#")} <= found.ids.keys()


def test_headings_are_in_order(page: tuple[str, str, Page]) -> None:
    _, _, found = page
    assert found.headings[0] == 1 and found.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(found.headings, found.headings[1:], strict=False))


def test_the_landmarks_are_there_once(page: tuple[str, str, Page]) -> None:
    _, _, found = page
    assert (found.tags["main"], found.tags["nav"], found.tags["footer"]) == (1, 1, 1)


def test_nothing_is_fetched_and_nothing_but_the_own_script_may_run(page: tuple[str, str, Page]) -> None:
    _, text, found = page
    assert not {"src", "srcset", "style"} & found.attributes
    assert not [name for name in found.attributes if name.startswith("on")]
    assert (found.tags["script"], found.tags["style"], found.tags["link"]) == (1, 1, 0)
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(found.raw[name].encode()).digest()).decode()
        assert f"{name}-src &#39;sha256-{digest}&#39;" in text or f"{name}-src 'sha256-{digest}'" in text
        assert "url(" not in found.raw[name] and "@import" not in found.raw[name]


def test_only_sources_and_reasons_lead_elsewhere_and_only_whoever_follows_one_fetches_anything(
    page: tuple[str, str, Page],
) -> None:
    """Pages of comparison lead to no more than the reports that they compare."""
    name, _, found = page
    outside = {link for link in found.links if "://" in link or link.startswith(("//", "javascript:", "data:"))}
    places = {"/".join(link.split("/")[:3]) for link in outside}
    compares = name in {"ten_transports", "hostile_pair"}
    reasons = {"https://example.com"} if name == "deviations" else set()
    assert places == (set() if compares else {"https://docs.ray.io", "https://github.com"} | reasons)
    assert compares or "https://github.com/ray-project/ray/issues/65205" in outside


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "//example.com/1",
        "http://example.com/1",
        "https://example.com/" + "x" * 5_000,
        HOSTILE[0],
    ],
)
def test_what_is_no_address_of_a_web_page_is_shown_and_is_no_link(tmp_path: Path, link: str) -> None:
    found = Page(made_pages.deviations(tmp_path, link).read_text(encoding="utf-8"))
    assert "".join(link.split()) in "".join(found.text.split())
    assert not [
        each for each in found.links if not each.startswith(("#", "https://docs.ray.io/", "https://github.com/"))
    ]


def test_what_applies_from_some_version_of_ray_on_needs_no_other_engine() -> None:
    clause = {"level": "MUST", "untested": "", "applies": "transports that carry GPU memory"}
    for since in ("", ", from Ray 2.58 on"):
        result = {"status": "not applicable", "reason": f"only for {clause['applies']}{since}", "hidden_by": ""}
        assert view.shown(clause, result) is view.NOT_APPLICABLE
    assert view.shown(clause, {**result, "reason": "needs the ray engine"}) is view.ELSEWHERE


def test_last_words_are_shown(tmp_path: Path) -> None:
    report = write(tmp_path, [*passing(besides=["G4"]), failing("G4", crash="thread 'mine':\n<b>KeyError: 1</b>")])
    found = Page(made_pages.page(tmp_path, report).read_text(encoding="utf-8"))
    assert "Last words of what ended by itself" in found.text and "<b>KeyError: 1</b>" in found.text


def test_a_normal_run_is_a_small_file(page: tuple[str, str, Page]) -> None:
    name, text, _ = page
    not_normal = {"forty_failures": 2_500_000, "hostile": 600_000}
    assert len(text.encode()) < not_normal.get(name, 420_000)


def test_hostile_texts_are_shown_as_they_are(tmp_path: Path) -> None:
    found = Page(made_pages.hostile(tmp_path).read_text(encoding="utf-8"))
    for text in HOSTILE:
        assert "".join(re.sub("[\x01\u202e\ud800]", "�", text).split()) in "".join(found.text.split()), text


def test_a_page_tells_what_was_promised_what_happened_and_how_to_see_it_again(tmp_path: Path) -> None:
    found = Page(made_pages.one_failure(tmp_path).read_text(encoding="utf-8"))
    text = " ".join(found.text.split())
    assert "Not conformant" in text
    assert CLAUSES["G4"].sentence in text
    assert "The destination received other bytes than the source had." in text
    assert "pytest --transport=mine:Mine --rdt-engine=local --rdt-profile=quick --rdt-seed=7 -k test_broken" in text
    assert "receivers = 1" in text, "the example that went well"
    assert "no transfer was caught in flight" in text
    assert {"failure-G4", "failure-G10", "G4", "A1"} <= found.ids.keys()


def test_every_cell_leads_to_what_was_run_and_seen(tmp_path: Path) -> None:
    text = made_pages.gpu(tmp_path).read_text(encoding="utf-8")
    cells = re.findall(r'<a class="chip \w+" href="#(\w+)" aria-label="(\w+) on (\w+): ([\w ]+)"', text)
    assert len(cells) == 3 * len(CLAUSES)
    assert all(target == clause for target, clause, _, _ in cells)
    assert ("D1", "D1", "cluster", "fail") in cells and ("D1", "D1", "local", "pass") in cells
    assert "integrity, on cluster and ray" in text
    assert Counter(clause for _, clause, _, _ in cells) == Counter(dict.fromkeys(CLAUSES, 3))


def test_a_report_draws_its_pages_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = write(tmp_path, passing())
    assert cli.main(["report", str(report)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.json", "report.html", "summary.md", "badge.svg", "badge.json",
    }  # fmt: skip
    assert cli.main(["report", str(report), "-o", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "report.html").read_text() == (tmp_path / "report.html").read_text()


def test_a_bad_report_is_one_clear_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write(tmp_path, passing()), tmp_path / "bad.json"
    bad.write_text(good.read_text()[:-200])
    for files in ([str(bad)], [str(good), str(bad)]):
        assert cli.main(["report", *files, "-o", str(tmp_path / "out")]) == 4
        said = capsys.readouterr()
        assert said.err.startswith(f"{bad}: cut off or damaged at line ") and said.err.count("\n") == 1
        assert said.out == ""
    assert not (tmp_path / "out").exists()


def test_a_page_that_cannot_be_drawn_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json_report.read(write(tmp_path / "a", passing()))
    monkeypatch.setattr(html, "render_run", lambda document: 1 / 0)
    with pytest.raises(ReportProblem, match=r"report\.html: not written \(a harness error\): ZeroDivisionError: "):
        folder.write(tmp_path, document)
    assert (tmp_path / "report.json").exists()


def test_a_comparison_shows_differences_first_and_leads_to_each_page(tmp_path: Path) -> None:
    text = made_pages.ten_transports(tmp_path).read_text(encoding="utf-8")
    found = Page(text)
    assert found.text.index("Differences") < found.text.index("Alike")
    pages = {link.partition("#")[0] for link in found.links if not link.startswith("#")}
    assert pages == {f"{number}/report.html" for number in range(1, 10, 2)}
    assert all((tmp_path / link).is_file() for link in pages)
    (latency,) = re.findall(r'<svg class="chart" role="img" aria-labelledby="latency-title".*?</svg>', text, re.DOTALL)
    assert re.findall(r'<text class="name s\d" [^>]*>(.*?)</text>', latency) == [f"Transport{n}" for n in range(8)]


def test_runs_of_the_same_transport_are_told_apart(tmp_path: Path) -> None:
    reports = [write(tmp_path / str(number), passing()) for number in range(3)]
    for report, version in zip(reports, ("2.57.0", "2.60.0", "2.60.0"), strict=True):
        forge(report, lambda document, version=version: document["environment"]["packages"].update(ray=version))
    page = folder.write_comparison(tmp_path, [(report, json_report.read(report)) for report in reports])
    heads = re.findall(r'<th scope="col" class="run"><span>(.*?)</span>', page.read_text())[:3]
    assert len(set(heads)) == 3
    assert all(head.startswith("Mine, ray 2.") for head in heads)


def test_a_run_in_one_column_says_so_in_words(tmp_path: Path) -> None:
    text = RUNS["no_failures"](tmp_path).read_text(encoding="utf-8")
    assert "None: no clause was found broken." in text
    assert "None were run." in text


def test_runs_on_good_transports_are_counted_and_short_ones_are_told_apart(tmp_path: Path) -> None:
    document = json_report.read(write(tmp_path, passing()))
    whole = {"transport": "inline", "profile": "quick", "engine": "local", "runs": 3, "hits": 0, "seconds": 20.0}
    short = whole | {"profile": PART, "runs": 40, "transport": "tcp"}
    told = {0: "none", 2: "2"}
    for hits, said in told.items():
        document["alarms"] = [whole, short | {"hits": hits}]
        assert RunView(document).alarms == (
            "Of 43 runs on 2 transports that are right (40 of them short: a sixth of quick each), "
            f"{said} called one of them broken."
        )
    document["alarms"] = [whole]
    assert RunView(document).alarms == "Of 3 runs on 1 transport that are right, none called one of them broken."


def test_every_chart_has_its_words_and_its_numbers(tmp_path: Path) -> None:
    text = made_pages.benchmarks(tmp_path).read_text(encoding="utf-8")
    found = Page(text)
    assert found.tags["figure"] == text.count('<svg class="chart" role="img"') == text.count("How to read this:") > 10
    assert text.count("The same in numbers") == found.tags["figure"]
    for figure in re.findall(r'<figure class="charted" role="figure" aria-labelledby="(.+?)">', text):
        assert f'<h3 id="{figure}">' in text and f'<svg class="chart" role="img" aria-labelledby="{figure}"' in text
    assert 'id="numbers"' in text and "Not drawn" not in text
    assert "<h3>Not drawn</h3>" in made_pages.odd_benchmarks(tmp_path).read_text(encoding="utf-8")


def test_drawing_costs_little_time() -> None:
    code = (
        "import sys, time; sys.path.insert(0, 'tests'); import made_reports, made_pages, pathlib, tempfile\n"
        "from rdt_conformance.report import json_report\n"
        "place = pathlib.Path(tempfile.mkdtemp()); document = json_report.read(made_reports.write(place,"
        " [*made_reports.passing(besides=['G4']), made_reports.failing('G4')]))\n"
        "began = time.process_time(); from rdt_conformance.report import folder; folder.write(place, document)\n"
        "print(time.process_time() - began)"
    )
    root = Path(__file__).parent.parent
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, timeout=60)
    assert float(run.stdout) < 0.6
