"""A real browser, and every page that it has to show. Without the browser the tests fail: they are not for skipping."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_pages import PAGES
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        pytest.fail("there is no chromium; `apt-get install chromium` brings one")
    with sync_playwright() as playwright:
        # Its sandbox refuses to work for root, which CI is.
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file of each page, by name."""
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in PAGES.items()}
