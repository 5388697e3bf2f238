"""The search of the published site, in a browser: from a server as a site's pages are, and from disk."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from helpers.stepper.format import VIEW
from tests.machine import NOTEBOOKS
from tools import site, words
from tools.book import search

pytestmark = pytest.mark.browser
SAID = VIEW["page"]["search"]
FOUND = "(all) => all.map((one) => [one.textContent, one.getAttribute('href')])"


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    """Address of the search on a server, which has the site under a path, as GitHub Pages does."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{built.name}/search.html"
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
    in_sight = (
        "(one) => one.getBoundingClientRect().top >= 0 && one.getBoundingClientRect().top < innerHeight"
    )
    assert page.locator(":target").evaluate(in_sight)
    assert "memory wall" in page.locator("p:has(> :target) + *").inner_text()
    page.go_back()
    expect(page.locator("#query")).to_have_value("memory wall")
    page.locator("#found a").nth(1).click()
    page.wait_for_url("**#cell-id=*")
    assert page.locator(":target").evaluate(in_sight)
    page.keyboard.press("Control+k")  # the search field of every page
    page.keyboard.type("cache")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=cache")
    expect(page.locator("#found a").first).to_have_text("KV cache, past_key_values")
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
            "scaled_dot_product_attention",
        ),
        ("answer sheets for a lesson", "Lesson 2: what a step costs", "answers"),
    ],
)
def test_what_is_meant_is_found(address: str, page: Page, query: str, heading: str, marked: str) -> None:
    page.goto(address)
    found = ask(page, query)
    assert heading in [text for text, _ in found[:4]]
    assert len({at for _, at in found}) == len(found)
    assert marked in page.locator("#found mark").all_text_contents()


def test_nothing_is_found_of_what_is_folded(built: Path) -> None:
    soup = pytest.importorskip("bs4").BeautifulSoup
    index = (built / "places.js").read_text(encoding="utf-8").removeprefix("const index = ").rstrip(";\n")
    found = " ".join(place["text"] for place in json.loads(index)["places"])
    for path in (built / "notebooks").iterdir():
        for folded in soup(path.read_text(encoding="utf-8"), "html.parser").select("details p"):
            text = " ".join(folded.get_text().split())
            assert len(text) < 40 or text not in found  # a short line of code may come again
    assert "T counts the tokens of the prompt" in found


# What people type, and where it leads: the heading that is found first, and its page.
TYPED = """
    cache | KV cache, past_key_values | 00
    kv cache size | How large is the cache of my model? | 10
    quantization | quantization level, level | 14
    int4 | May I keep the KV cache in 8 or 4 bits? | 14
    tokens per second | How many tokens a second can a card give, at most? | 12
    paged attention | page, block | 17
    why is the first token slow | Why does the first word come late, and later after a long prompt? | 00
    TTFT | TTFT | 09
    latency | TPOT, inter-token latency, ITL | 09
    flash attention | Does FlashAttention replace the KV cache? | 04
    gqa | grouped-query attention, GQA | 06
    position encoding | rotary positions, RoPE, RoPE, rotary embedding | 06
    out of memory | How many users fit on my card? | 11
    how many users per gpu | How many users fit on my card? | 11
    context length | I set a long context and never fill it: does it take memory? | 11
    batch size | How many requests at once, and how many tokens a step? | 16
    continuous batching | continuous batching, continuous, in-flight batching | 16
    prompt caching | prefix caching, prompt caching | 17
    speculative decoding | speculative decoding, speculation | 18
    multi gpu | Are two cards twice as fast? | 19
    different at temperature 0 | Why are there other words for the same prompt at temperature 0? | 21
    json output | How does a model say only valid JSON? | 24
    mamba | What is Mamba, for a KV cache? | 23
    eviction | What does a model forget when old entries are dropped? | 14
    decode slow | Where does the time of a decode step go? | 13
    moe | expert, experts, mixture of experts, MoE | 18
"""


def test_what_people_type_leads_where_it_should(address: str, page: Page) -> None:
    page.goto(address)
    wanted = [line.strip().split(" | ") for line in TYPED.strip().splitlines()]
    found = page.locator("#query").evaluate(FIRSTS, [query for query, *_ in wanted])
    assert [[query, text, href.removeprefix("notebooks/")[:2]] for query, text, href in found] == wanted


def test_what_people_ask_names_entries(built: Path) -> None:
    index = (built / "places.js").read_text(encoding="utf-8")
    for heading, asked in search.ASKED.items():
        assert json.dumps(asked, ensure_ascii=False) in index, heading


def test_nonsense_is_no_place_and_markup_is_text(address: str, page: Page, problems: list[str]) -> None:
    page.goto(address)
    for query in ("zzzzqqq", "...", "   "):
        assert ask(page, query) == []
        expect(page.locator("#count")).to_have_text(SAID["nothing"] if query.strip() else "")
    ask(page, "<img src=x onerror=alert(1)>")
    assert page.locator("#found img").count() == 0
    assert problems == []


def test_the_keyboard_and_the_address_from_disk_without_a_network(built: Path, page: Page) -> None:
    page.context.set_offline(True)
    page.goto(f"{(built / 'search.html').as_uri()}#q=chunked+prefill")
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
