"""The pages in a real browser: from a file, without network, light and dark, wide and narrow, by mouse and keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from made_pages import HOSTILE, PAGES
from playwright.sync_api import Browser, BrowserContext, Page, expect

OPEN_ALL = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


class Watched:
    """A page that is open, with everything that went wrong in it so far."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.problems: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._note_request(request.url, path))
        self.page.goto(path.as_uri())

    def _note_request(self, url: str, path: Path) -> None:
        if not url.startswith(path.as_uri()):
            self.problems.append(f"request: {url}")


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_opens_from_a_file_without_network_and_without_an_error(
    name: str, context: BrowserContext, pages: dict[str, Path]
) -> None:
    watched = Watched(context, pages[name])
    expect(watched.page.locator("h1")).to_be_visible()
    assert watched.page.evaluate("getComputedStyle(document.querySelector('nav a')).textDecorationLine") == "none"
    assert watched.problems == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_sticks_out_at_any_width(name: str, context: BrowserContext, pages: dict[str, Path]) -> None:
    page = Watched(context, pages[name]).page
    page.evaluate(OPEN_ALL)
    for width in (1280, 820, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    "name", [name for name in PAGES if name not in ("forty_failures", "benchmarks")]
)  # more of the same
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(name: str, scheme: Any, browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page = Watched(context, pages[name]).page
    page.evaluate(OPEN_ALL)
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    context.close()
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical", "moderate")]
    assert [(v["id"], [node["target"] for node in v["nodes"]][:5]) for v in serious] == []


@pytest.mark.parametrize("name", ["one_failure", "gpu", "hostile", "ten_transports"])
def test_every_link_within_the_page_brings_its_goal_into_view(
    name: str, context: BrowserContext, pages: dict[str, Path]
) -> None:
    watched = Watched(context, pages[name])
    page = watched.page
    page.evaluate(OPEN_ALL)
    lost = page.evaluate("""() => {
        const lost = [];
        for (const link of document.querySelectorAll("a[href^='#']")) {
            scrollTo(0, 0);
            link.click();
            const goal = document.getElementById(decodeURIComponent(location.hash.slice(1)));
            const box = goal && goal.getBoundingClientRect();
            const inView = box && box.top < innerHeight && box.bottom > 0;
            if (!inView || location.hash !== link.getAttribute("href")) lost.push(link.outerHTML);
        }
        return lost;
    }""")
    assert lost == []
    assert watched.problems == []


def test_links_between_pages_lead_to_files_that_are_there(context: BrowserContext, pages: dict[str, Path]) -> None:
    for name in ("ten_transports", "hostile_pair"):
        page = Watched(context, pages[name]).page
        links = page.eval_on_selector_all("a[href*='report.html']", "links => links.map((link) => link.href)")
        assert links
        for link in sorted({link.partition("#")[0] for link in links}):
            page.goto(link)
            expect(page.locator("h1")).to_be_visible()


@pytest.mark.parametrize("name", ["one_failure", "hostile"])
def test_every_copy_button_copies_its_command(name: str, context: BrowserContext, pages: dict[str, Path]) -> None:
    watched = Watched(context, pages[name])
    buttons = watched.page.locator(".command button.copy")
    assert buttons.count() == watched.page.locator(".command").count() > 0
    for number in range(buttons.count()):
        buttons.nth(number).click()
        expect(watched.page.get_by_role("status")).to_have_text("Copied")
        expected = watched.page.locator(".command code").nth(number).text_content()
        assert watched.page.evaluate("navigator.clipboard.readText()") == expected
        watched.page.evaluate("document.querySelector('.said').textContent = ''")
    assert watched.problems == []


def test_the_table_of_all_numbers_is_sorted_and_copied(context: BrowserContext, pages: dict[str, Path]) -> None:
    watched = Watched(context, pages["odd_benchmarks"])
    page = watched.page
    table = page.locator("#numbers")
    column = "rows => rows.map((row) => row.cells[6].textContent)"
    before = page.eval_on_selector_all("#numbers tbody tr", column)
    for direction, reverse in (("ascending", False), ("descending", True)):
        table.get_by_role("button", name="p50, µs").press("Enter")
        expect(table.get_by_role("columnheader", name="p50, µs")).to_have_attribute("aria-sort", direction)
        numbers = sorted((float(number) for number in before if number), reverse=reverse)
        after = page.eval_on_selector_all("#numbers tbody tr", column)
        assert [float(number) for number in after if number] == numbers
        assert after[len(numbers) :] == [""] * (len(before) - len(numbers)), "what has no number comes last"
    page.locator("button.copy[data-copy='numbers']").click()
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert len(lines) == 1 + len(before) and lines[0].startswith("benchmark\tcell\tengine\tcontender\tsamples")
    assert {line.count("\t") for line in lines} == {18}
    assert watched.problems == []


def test_without_a_clipboard_the_button_still_does_something(context: BrowserContext, pages: dict[str, Path]) -> None:
    context.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    context.add_init_script("Document.prototype.execCommand = () => false")
    page = Watched(context, pages["one_failure"]).page
    page.locator("button.copy").first.click()
    expect(page.get_by_role("status")).to_have_text("Selected, copy it with the keyboard")
    assert page.evaluate("getSelection().toString()").startswith("pytest --transport=mine:Mine")


def test_without_scripts_the_page_is_whole_and_has_no_dead_button(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["one_failure"].as_uri())
    expect(page.locator("#failure-G4")).to_contain_text("The destination received other bytes than the source had.")
    expect(page.locator("button.copy").first).to_be_hidden()
    context.close()


@pytest.mark.parametrize("name", ["one_failure", "ten_transports"])
def test_the_keyboard_reaches_everything_that_can_be_used(
    name: str, context: BrowserContext, pages: dict[str, Path]
) -> None:
    page = Watched(context, pages[name]).page
    wanted = page.evaluate("""() => {
        const usable = [...document.querySelectorAll("a[href], button, summary, [tabindex='0']")];
        const visible = usable.filter((element) => element.checkVisibility());
        visible.forEach((element, number) => { element.dataset.number = number; });
        return visible.length;
    }""")
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.dataset.number"))
    assert reached == [str(number) for number in range(wanted)]


def test_the_first_key_leads_past_the_contents(context: BrowserContext, pages: dict[str, Path]) -> None:
    page = Watched(context, pages["no_failures"]).page
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the verdict")
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_hostile_texts_do_nothing(context: BrowserContext, pages: dict[str, Path]) -> None:
    watched = Watched(context, pages["hostile"])
    page = watched.page
    assert page.title().startswith("Not conformant: ")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator("h1").count() == 1
    assert page.locator(f"text={HOSTILE[6][:4]}").count() > 0
    page.mouse.move(300, 300)
    assert watched.problems == []


def test_on_paper_everything_is_open_and_black_on_white(context: BrowserContext, pages: dict[str, Path]) -> None:
    page = Watched(context, pages["one_failure"]).page
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("nav")).to_be_hidden()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
