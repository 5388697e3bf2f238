"""Fixtures of the browser tests: one JupyterLab and one Chromium, a fresh page for each test.

    def test_something(lab, page):
        open_notebook(page, lab, lab.put(ROOT / "notebooks/00_start_here.ipynb"))
        run_all(page)

The fixture `problems` lists the console errors and uncaught exceptions of the page so far, but for
those by which JupyterLab itself tells that a kernel went away before it had answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.browser.lab import FLAGS, Lab

# What JupyterLab's own services say when a kernel is restarted or shut down while they wait for it:
# its debugger asks each kernel for its state, and whether the answer comes first is a matter of luck.
LOST_KERNEL = re.compile(
    r"^(Error: )?(Could not restore the debugger state: )?Canceled future for \w+ message"
)


@pytest.fixture(scope="session")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running JupyterLab on an empty folder."""
    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.stop()


# Not for the session: while playwright runs, this thread counts as inside an event loop,
# and the notebooks' kernels that nbval drives from the same worker would not start.
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A running Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def context_options() -> dict[str, Any]:
    """Options of the page's browser context; parametrise or override it for another viewport."""
    return {"viewport": {"width": 1200, "height": 900}}


@pytest.fixture
def context(browser: Browser, context_options: dict[str, Any]) -> Iterator[BrowserContext]:
    """A browser context of its own for each test."""
    context = browser.new_context(**context_options)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A fresh page."""
    return context.new_page()


@pytest.fixture
def problems(page: Page) -> list[str]:
    """Console errors and uncaught exceptions of the page so far; a test may clear the list."""
    found: list[str] = []

    def note(text: str) -> None:
        if not LOST_KERNEL.match(text):
            found.append(text)

    def read_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            note(message.text)

    page.on("console", read_console)
    page.on("pageerror", lambda error: note(str(error)))
    return found
