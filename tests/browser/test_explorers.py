"""The explorer in a real JupyterLab: what a reader sees, turns and hears."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import Lab, open_notebook, reopen, run_all, wrong_outputs

pytestmark = pytest.mark.browser

CELLS = (
    "from helpers import explorers, toy\nexplorers.next_word(toy.step(toy.PROMPT))",
    "explorers.next_word(toy.step(toy.PROMPT), temperature=2.0)",
    "'the last cell'",
)


def explorer(page: Page, nth: int) -> Locator:
    return page.locator(".wid-knobs").nth(nth)


def opened(page: Page, lab: Lab, *, dark: bool = False) -> str:
    notebook = lab.write(*CELLS)
    open_notebook(page, lab, notebook, dark=dark)
    run_all(page)
    expect(page.locator(".wid-explorer .grid")).to_have_count(2)
    return notebook


def test_by_keyboard(lab: Lab, page: Page, problems: list[str]) -> None:
    opened(page, lab)
    words = explorer(page, 0)
    words.get_by_role("slider", name="top-k of 4").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(words).to_contain_text("2 of 4 words can be drawn; nice goes from 72.3% to 73.1%")
    expect(words.get_by_text("top-k keeps the 2 largest")).to_have_count(2)
    for key in "ddaxz":  # commands of JupyterLab: delete, insert, cut, undo
        page.keyboard.press(key)
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(3)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    expect(words.get_by_role("slider", name="temperature")).to_be_focused()
    words.get_by_role("button", name="Reset").press("Enter")
    expect(words).to_contain_text("4 of 4 words can be drawn")
    page.keyboard.press("d")
    page.keyboard.press("d")
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(3)
    assert problems == []


def test_by_mouse_and_by_typing(lab: Lab, page: Page, problems: list[str]) -> None:
    opened(page, lab)
    words, other = explorer(page, 0), explorer(page, 1)
    typed = words.get_by_label("temperature, type a value")
    typed.click()
    page.keyboard.press("Control+A")
    page.keyboard.type("0.5")
    page.keyboard.press("Enter")
    expect(words).to_contain_text("nice goes from 72.3% to 88.1%")
    slider = other.get_by_role("slider", name="top-k of 4")
    bar = other.locator(".widget-slider").nth(1).locator(".noUi-base")
    box = bar.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 1, box["y"] + box["height"] / 2)
    expect(slider).to_have_attribute("aria-valuetext", "1")
    expect(other).to_contain_text("1 of 4 words can be drawn")
    expect(words).to_contain_text("4 of 4 words can be drawn")
    expect(other.locator(".wid-said")).to_have_attribute("aria-live", "polite")
    assert problems == []


@pytest.mark.parametrize("context_options", [{"viewport": {"width": 400, "height": 900}}])
def test_a_narrow_page_does_not_scroll_sideways(
    lab: Lab, page: Page, context_options: dict[str, Any]
) -> None:
    opened(page, lab)
    for output in page.locator(".jp-OutputArea-output:has(.wid-knobs)").all():
        sizes = output.evaluate("node => [node.scrollWidth, node.clientWidth]")
        assert sizes[0] <= sizes[1]
    bars = explorer(page, 1).locator(".bar").evaluate_all("all => all.map(one => one.clientWidth)")
    assert max(bars) >= 40


def test_colours_follow_the_theme(lab: Lab, page: Page) -> None:
    opened(page, lab, dark=True)
    colour = "node => getComputedStyle(node).backgroundColor"
    assert explorer(page, 0).locator(".after").first.evaluate(colour) == "rgb(215, 154, 222)"
    text = explorer(page, 0).locator(".soft").first.evaluate("node => getComputedStyle(node).color")
    assert text == "rgb(163, 173, 184)"


def test_live_in_place_of_the_picture_and_back(lab: Lab, page: Page, problems: list[str]) -> None:
    notebook = opened(page, lab)
    pictures, numbers = page.locator(".jp-OutputArea-output img"), page.locator(".wid-static p")
    expect(pictures).to_have_count(2)
    for hidden in (pictures.first, numbers.first):
        expect(hidden).to_be_hidden()
    expect(explorer(page, 0)).to_be_visible()
    assert wrong_outputs(page) == []
    assert problems == []
    reopen(page, lab, notebook, restarted=True)
    for shown in (pictures.first, pictures.last, numbers.first, numbers.last):
        expect(shown).to_be_visible()
    expect(explorer(page, 0)).to_have_count(0)
