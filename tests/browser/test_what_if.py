"""What if in a Chromium, from disk and offline: what it shows is what Python's toy makes of the prompt."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from helpers.drawing.palette import THEMES
from helpers.stepper import WhatIf
from helpers.stepper.format import VIEW, percent
from tests.browser.conftest import Show, page_of
from tests.made_traces import HOSTILE
from tests.toy_cases import WORDS, run
from tests.written import number

pytestmark = pytest.mark.browser
PROMPT = list(zip(WORDS, [10.0, 20, 1, 5, 14], strict=True))
COLOURS = {
    f"rgb({int(c[1:3], 16)}, {int(c[3:5], 16)}, {int(c[5:], 16)})": name
    for theme in ("light", "dark")
    for name, c in THEMES[theme].items()
    if len(c) == 7
}
CHANGED = [(word, 8.0 if word == "weather" else x) for word, x in PROMPT]

READ = """() => {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent);
  return {
    words: [...document.querySelectorAll('.wid-word:is(input)')].map((field) => field.value),
    numbers: [...document.querySelectorAll('.wid-number')].map((field) => Number(field.value)),
    now: texts('.wid-stored > span:first-child'), was: texts('.wid-stored > span + span'),
    paints: [...document.querySelectorAll('td.wid-stored')].map((cell) => {
      const { backgroundColor, backgroundImage, borderTopStyle, borderTopWidth } = getComputedStyle(cell);
      const edge = parseFloat(borderTopWidth) ? borderTopStyle : "none";
      return [cell.className.split(' ')[1], cell.title, backgroundColor, backgroundImage !== "none", edge];
    }),
    edited: [...document.querySelectorAll('.wid-edited')].map((field) => field.value),
    layers: texts('.wid-layer b'), titles: texts('.wid-outcome p'),
    states: [...document.querySelectorAll('td.wid-stored')].map((cell) => cell.className.split(' ')[2]),
    kept: document.querySelector('.wid-kept')?.colSpan ?? 0,
    rest: document.querySelector('.wid-again')?.colSpan ?? 0,
    keep: texts('.wid-kept').join(''), again: texts('.wid-again').join(''),
    sentence: texts('.wid-sentence')[0], hint: texts('.wid-hint')[0],
    shares: texts('.wid-outcome .wid-percent'), chosen: texts('.wid-outcome .chosen .wid-word'),
  };
}"""


def check(page: Page, now: list[tuple[str, float]], **wanted: Any) -> dict[str, Any]:
    """The page shows this prompt, with the numbers that Python gets for it."""
    shown = page.evaluate(READ)
    assert list(zip(shown["words"], shown["numbers"], strict=True)) == now
    _, old = run(PROMPT)
    _, new = run(now)
    rows = [row for layer in new["rows"] for kind in "kv" for row in layer[kind]]
    texts = [f"{r[0]:g} · {r[1]:g}" if isinstance(r, list) else number(r) for r in rows]
    assert shown["now"] == texts
    assert shown["shares"][:8] == [percent(p) for says in (old, new) for p in says["probabilities"]]
    kept = wanted.pop("kept")
    assert (shown["kept"], shown["rest"], shown["again"]) == (kept, len(now) - kept, wanted.pop("again"))
    assert shown["keep"] == (f"keep {kept} token{'s' * (kept > 1)}" if kept else "")
    for state, many in wanted.items():
        assert shown["states"].count(state) == many, state
    check_paints(shown)
    assert shown["layers"] == ["Layer 1", "Layer 2"]
    assert (
        shown["titles"]
        == ["The model said", "It says now", "With stale entries in layer 2"][: len(shown["titles"])]
    )
    return shown


def check_paints(shown: dict[str, Any]) -> None:
    """Each state of a row looks like itself, K unlike V, and says on pointing what it is."""
    for state, (kind, title, ground, hatched, edge) in zip(shown["states"], shown["paints"], strict=True):
        assert title == VIEW["what_if"]["entries"][state]
        assert COLOURS.get(ground) == (f"{kind}f" if state == "kept" else None)
        assert hatched == (state == "stale")
        assert edge == {"kept": "none", "stale": "solid", "same": "solid", "new": "dashed"}[state]


def field(page: Page, name: str, place: int) -> Locator:
    return page.locator(f'input.wid-{name}[aria-label$="ord {place}"]')


def button(page: Page, sign: str, place: int) -> Locator:
    return page.locator(".wid-edit", has_text=sign).nth(place - 1)


def test_without_an_address_as_in_a_notebook(show: Show) -> None:
    page = show(page_of(WhatIf()).replace('"address": ""', '"address": null'))
    assert page.evaluate(READ)["hint"] == VIEW["what_if"]["hint"]
    page.locator(".wid-number").nth(2).fill("7")
    assert page.evaluate(READ)["numbers"] == [10, 8, 7, 5, 14]
    assert "#" not in page.url


def test_a_number_a_word_in_out_exchanged_and_back(show: Show) -> None:
    page = show(WhatIf())
    shown = check(page, CHANGED, kept=1, again="4 tokens must run again", stale=5, same=11, new=0)
    assert shown["was"][5:10] == ["", "old 20", "", "", ""]
    assert "weather carries 8 now, not 20." in shown["sentence"]
    assert shown["edited"] == ["8"]
    assert shown["chosen"] == ["<eos>", "<eos>", "nice"], "layer 1 alone made again is not enough"
    page.get_by_role("button", name="Reset").click()
    shown = check(page, PROMPT, kept=5, again="", stale=0)
    assert shown["edited"] == []
    assert shown["sentence"].startswith("Nothing is changed")
    button(page, "+", 1).press("Enter")
    moved = [("Oslo", 8.0), *PROMPT]
    check(page, moved, kept=0, again="6 tokens must run again", stale=15, new=4, same=5)
    expect(page.locator("button:focus")).to_have_text("+")
    button(page, "×", 1).press("Enter")
    check(page, PROMPT, kept=5, again="", stale=0)
    expect(page.locator("button:focus")).to_have_text("×")
    field(page, "word", 5).fill("warm")
    field(page, "word", 5).press("Enter")  # a known word brings its number
    check(page, [*PROMPT[:4], ("warm", 12.0)], kept=4, again="1 token must run again", stale=2)
    button(page, "×", 5).click()
    shown = check(page, PROMPT[:4], kept=4, again="", stale=0)
    assert "the cache holds no logits" in shown["sentence"]


def test_typing_counts_at_once_and_arrows_step(show: Show) -> None:
    page = show(WhatIf(), "#words=Today,weather,is,so,nice&numbers=10,20,1,5,14")
    two = field(page, "number", 2)
    two.focus()
    page.keyboard.type("8")
    check(page, CHANGED, kept=1, again="4 tokens must run again")
    page.keyboard.press("ArrowDown")
    check(page, [PROMPT[0], ("weather", 7.0), *PROMPT[2:]], kept=1, again="4 tokens must run again")
    expect(two).to_be_focused()
    page.wait_for_url("**#words=Today,weather,is,so,nice&numbers=10,7,1,5,14")
    page.keyboard.press("Tab")
    expect(button(page, "+", 3)).to_be_focused()


WRONG = (
    ("number", "", "Got (empty) as the number of weather, expected one from −1,000 to 1,000"),
    ("number", "1e400", "Got 1e400 as"),
    ("number", "Infinity", "Got Infinity as"),
    ("number", "1e9", "Got 1e9 as"),
    ("word", " ", "Got an empty word, expected text"),
)


def test_what_is_wrong_changes_nothing(show: Show) -> None:
    page = show(WhatIf())
    for name, text, sentence in WRONG:
        field(page, "number", 1).focus()
        field(page, name, 2).focus()
        page.keyboard.type(text) if text else page.keyboard.press("Delete")
        page.keyboard.press("Enter")
        shown = check(page, CHANGED, kept=1, again="4 tokens must run again", stale=5)
        assert sentence in shown["hint"]
        assert shown["hint"].endswith("Nothing was changed.")
        expect(field(page, name, 2)).to_be_focused()
        for typed in ("7", "8"):
            field(page, "number", 2).fill(typed)
        assert page.evaluate(READ)["hint"] == VIEW["what_if"]["hint"], "no longer true, no longer said"


@pytest.mark.parametrize(("width", "finger"), [(360, True), (300, False)])
def test_words_are_not_cut_on_a_phone(show: Show, width: int, finger: bool) -> None:
    page = show(WhatIf(), width=width, has_touch=finger)
    cut = "(nodes) => nodes.filter((n) => n.scrollWidth > n.clientWidth).map((n) => n.value)"
    assert page.locator(".wid-token input").evaluate_all(cut) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    if finger:  # under 16 px a phone zooms; what is hit is as high as a finger
        size, high = page.locator("input.wid-word").first.evaluate(
            "(n) => [parseFloat(getComputedStyle(n).fontSize), n.getBoundingClientRect().height]"
        )
        assert size >= 16
        assert high >= 39


def test_64_words_and_no_more_one_and_no_less_hostile_ones(show: Show) -> None:
    page = show(WhatIf(), f"#words={'is,' * 63}is&numbers={'1,' * 63}1", width=280, color_scheme="dark")
    expect(page.locator(".wid-further")).to_be_visible()
    page.locator(".wid-end button").click()
    assert page.evaluate(READ)["hint"].startswith("Got 65 words, expected at most 64")
    page.evaluate("location.hash = '#words=is,so&numbers=1,1e9'")
    expect(page.locator(".wid-advice")).to_be_visible()
    expect(page.locator(".wid-further")).to_be_hidden()
    button(page, "×", 1).click()
    assert page.evaluate(READ)["hint"].startswith("Got no words; expected at least one")
    field(page, "word", 1).fill(HOSTILE[0])
    expect(page.locator(".wid-token").first).to_have_attribute("title", HOSTILE[0])
    ground = page.locator(".wid-what_if").evaluate("node => getComputedStyle(node).backgroundColor")
    assert ground == "rgb(17, 20, 24)"
