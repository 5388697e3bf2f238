"""The search of the published site, in a browser: from a server as a site's pages are, and from disk."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from helpers.stepper.format import VIEW
from tests.machine import NOTEBOOKS
from tools import site, teaching, words

pytestmark = pytest.mark.browser
SITE = "watch-it-decode"
SAID = VIEW["page"]["search"]
FOUND = "(all) => all.map((one) => [one.textContent, one.getAttribute('href')])"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebooks as pages, without their outputs, so that none is run; two others; the search."""
    render = pytest.importorskip("tools.render")
    search = pytest.importorskip("tools.search")
    root = tmp_path_factory.mktemp("search")
    pages = {"teaching.html": teaching.teaching_page(), "ways.html": site.learning_paths_page()}
    for path in NOTEBOOKS:
        book = nbformat.read(path, as_version=4)
        for cell in book.cells:
            cell.get("outputs", []).clear()
        nbformat.write(book, root / path.name)
        pages[f"notebooks/{path.stem}.html"] = render.render_notebook(root / path.name)
    pages["search.html"] = search.search_page(pages, site.question_links(), NOTEBOOKS[0].parent)
    (root / SITE / "notebooks").mkdir(parents=True)
    for name, text in pages.items():
        (root / SITE / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Address of the search on a server, which has the site under a path, as GitHub Pages does."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{SITE}/search.html"
    server.shutdown()
    server.server_close()


def ask(page: Page, query: str) -> list[list[str]]:
    """Heading and address of what is found."""
    page.locator("#query").fill(query)
    return page.locator("#found a").evaluate_all(FOUND)


def test_a_search_leads_to_the_cell_and_back(address: str, page: Page, problems: list[str]) -> None:
    page.goto(address)
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type("memory wall")
    expect(page.locator("#found mark").first).to_have_text("memory")
    page.keyboard.press("Enter")
    page.wait_for_url("**/notebooks/12_floor.html#cell-id=*")
    cell = page.locator(":target")
    expect(cell).to_contain_text("memory wall")
    expect(cell).to_be_in_viewport()
    page.go_back()
    expect(page.locator("#query")).to_have_value("memory wall")
    page.locator("#found a").nth(1).click()
    expect(page.locator(":target")).to_be_in_viewport()
    page.get_by_role("link", name=SAID["title"]).click()
    expect(page).to_have_url(address)
    assert problems == []


# The first that is found for each of many queries.
FIRSTS = """(field, queries) => queries.map((query) => {
  field.value = query;
  field.dispatchEvent(new Event("input"));
  const link = document.querySelector("#found a");
  return [query, link?.textContent, link?.getAttribute("href")];
})"""


def test_each_question_and_each_word_finds_its_own_cell_first(address: str, page: Page) -> None:
    page.goto(address)
    wanted = [[link.text, link.text, link.address] for link in site.question_links()]
    bold = words.bold_texts(NOTEBOOKS[0].parent)
    for word in (word for group in words.read_glossary().values() for word in group):
        name, *more = words.bold_forms(word)
        notebook, cell = next(words.first_bold_cells(word, bold))
        heading = ", ".join((name, *more, *words.other_terms(word)))
        wanted.append([name.upper(), heading, f"notebooks/{notebook}.html#cell-id={cell}"])
    assert page.locator("#query").evaluate(FIRSTS, [query for query, *_ in wanted]) == wanted


@pytest.mark.parametrize(
    ("query", "heading", "marked"),
    [
        ("bandwith", "memory bandwidth", "bandwidth"),  # a slip
        ("users fitting", "How many users fit on my card?", "users"),  # no place has both words
        (
            "scaled_dot_product_attention",
            "4. It reads the question well, and forgets it while it answers",
            "dot",
        ),
        ("answer sheets for a lesson", "For teachers", "lesson"),
    ],
)
def test_what_is_meant_is_found(address: str, page: Page, query: str, heading: str, marked: str) -> None:
    page.goto(address)
    found = ask(page, query)
    assert heading in [text for text, _ in found[:4]]
    assert len({at for _, at in found}) == len(found)
    assert marked in page.locator("#found mark").all_text_contents()


def test_nothing_is_found_of_what_is_folded(folder: Path) -> None:
    soup = pytest.importorskip("bs4").BeautifulSoup
    search, *pages = (
        soup(path.read_text("utf-8"), "html.parser")
        for path in (folder / SITE / "search.html", *(folder / SITE / "notebooks").iterdir())
    )
    found = " ".join(place["text"] for place in json.loads(search.find(id="places").string)["places"])
    for page in pages:
        for folded in page.select("details p"):
            text = " ".join(folded.get_text().split())
            assert len(text) < 30 or text not in found
    assert "T counts the tokens of the prompt" in found


def test_nonsense_is_no_place_and_markup_is_text(address: str, page: Page, problems: list[str]) -> None:
    page.goto(address)
    for query in ("zzzzqqq", "...", "   "):
        assert ask(page, query) == []
        expect(page.locator("#count")).to_have_text(SAID["nothing"] if query.strip() else "")
    ask(page, "<img src=x onerror=alert(1)>")
    assert page.locator("#found img").count() == 0
    assert problems == []


def test_the_keyboard_and_the_address_from_disk_without_a_network(folder: Path, page: Page) -> None:
    page.context.set_offline(True)
    page.goto(f"{(folder / SITE / 'search.html').as_uri()}#q=chunked+prefill")
    field, links = page.locator("#query"), page.locator("#found a")
    expect(links.first).to_have_text("chunked prefill")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(links.first).to_be_focused()
    page.keyboard.press("/")
    expect(field).to_be_focused()
    expect(field).to_have_value("chunked prefill")
    field.fill("ridge & slope")
    expect(page).to_have_url(re.compile(r"#q=ridge\+%26\+slope$"))
    page.evaluate("location.hash = '#q=prefill'")
    expect(field).to_have_value("prefill")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/notebooks/*.html#cell-id=*")


def test_no_page_of_a_notebook_scrolls_sideways_on_a_phone(folder: Path, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for path in sorted((folder / SITE / "notebooks").iterdir()):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path.name
