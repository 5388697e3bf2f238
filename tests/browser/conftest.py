"""Fixtures for the browser tests, which share one JupyterLab and one Chromium. Each test gets a new page.

    def test_something(lab, page):
        open_notebook(page, lab, lab.put(ROOT / "notebooks/00_start_here.ipynb"))
        run_all(page)

The fixture `problems` lists the page's console errors and uncaught exceptions so far. Errors with which
JupyterLab reports that a kernel was stopped before it answered are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    expect,
    sync_playwright,
)

from helpers.stepper.page import ViewData, assemble_page, front_end_options
from helpers.stepper.view import View
from tests.browser.lab import FLAGS, Lab, close_all

expect.set_options(timeout=30_000)  # milliseconds, for a busy machine

Show = Callable[..., Page]
# What JupyterLab's own services say when a kernel is restarted or shut down while they wait for it:
# its debugger asks each kernel for its state, and whether the answer comes first is a matter of luck.
LOST_KERNEL = re.compile(
    r"^(Error: )?(Could not restore the debugger state: )?Canceled future for \w+ message"
)


# For the folder, not for the session: while playwright runs, this thread counts as inside an event loop,
# and the notebooks' kernels that nbval drives from the same worker would not start.
@pytest.fixture(scope="package")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running JupyterLab server whose root folder is empty at first."""
    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.stop()


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """A running Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def context_options() -> dict[str, Any]:
    """The options for the page's browser context. A test can override the fixture to change the viewport."""
    return {"viewport": {"width": 1200, "height": 900}}


@pytest.fixture
def context(browser: Browser, context_options: dict[str, Any]) -> Iterator[BrowserContext]:
    """A new browser context for each test."""
    context = browser.new_context(**context_options)
    yield context
    context.close()


def page_of(view: View) -> str:
    """Return the HTML page that `save_html` makes for a view, but without the view's picture.

    To draw the picture would take half a second.
    """
    files = [view.file] if view.file else []
    shown = {"view0": ViewData(view.data, front_end_options(view))}
    return assemble_page("A view", '<div class="view" id="view0"></div>', shown, files=files)


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """A function that opens a view, an HTML text or a URL in a new browser context, and returns the page.

    Views and HTML texts are opened from disk, offline. At its end, the test fails if there was a console
    message that does not match `allowed`, an uncaught exception or a dialog, or if a page can be scrolled
    horizontally.
    """
    found: list[str] = []
    pages: list[Page] = []

    def dismiss(dialog: Dialog) -> None:
        found.append(dialog.message)
        dialog.dismiss()

    def shown(
        what: View | str,
        address: str = "",
        width: int = 940,
        script: str = "",
        allowed: str = "(?!)",
        **more: Any,
    ) -> Page:
        if isinstance(what, View) or not what.startswith("http"):
            path = tmp_path / f"{len(pages)}.html"
            path.write_text(page_of(what) if isinstance(what, View) else what, encoding="utf-8")
            what = path.as_uri()
        offline = what.startswith("file")
        page = browser.new_page(**{"viewport": {"width": width, "height": 900}, "offline": offline, **more})
        pages.append(page)
        page.on("console", lambda said: found.extend([] if re.search(allowed, said.text) else [said.text]))
        page.on("pageerror", lambda error: found.append(str(error)))
        page.on("dialog", dismiss)
        page.add_init_script(script)
        page.goto(what + address)
        return page

    yield shown
    for page in pages:
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append("the page scrolls sideways")
        page.context.close()
    assert found == []


@pytest.fixture(scope="package")
def desk(browser: Browser) -> Iterator[Page]:
    """The page in which all tests use JupyterLab. They share it because JupyterLab takes long to load."""
    with browser.new_context() as context:
        yield context.new_page()


@pytest.fixture
def page(request: pytest.FixtureRequest, context_options: dict[str, Any]) -> Iterator[Page]:
    """A new page. If the test uses the fixture `lab`, this is the shared page `desk`, with no notebook open.

    After a test in which a kernel was shut down, the page leaves JupyterLab, because JupyterLab's messages
    about the kernel's widgets may be late.
    """
    if "lab" not in request.fixturenames:
        yield request.getfixturevalue("context").new_page()
        return
    lab: Lab = request.getfixturevalue("lab")
    page: Page = request.getfixturevalue("desk")
    page.set_viewport_size(context_options["viewport"])
    yield page
    if lab.lost:
        page.goto("about:blank")
    else:
        close_all(page)
    lab.lost = False


@pytest.fixture
def problems(page: Page) -> Iterator[list[str]]:
    """The page's console errors and uncaught exceptions so far. A test may clear the list."""
    found: list[str] = []

    def note(text: str) -> None:
        if not LOST_KERNEL.match(text):
            found.append(text)

    def read_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            note(message.text)

    def read_error(error: Error) -> None:
        note(str(error))

    page.on("console", read_console)
    page.on("pageerror", read_error)
    yield found
    page.remove_listener("console", read_console)
    page.remove_listener("pageerror", read_error)
