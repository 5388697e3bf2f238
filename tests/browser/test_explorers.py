"""The explorer in a real JupyterLab: what a reader sees, turns and hears."""

from __future__ import annotations

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


def test_a_walk(lab: Lab, page: Page, problems: list[str]) -> None:
    """Run; turned by keys, by mouse, by typing, in another theme and width; opened again without a kernel."""
    notebook = lab.write(*CELLS)
    open_notebook(page, lab, notebook)
    run_all(page)
    expect(page.locator(".wid-explorer .grid")).to_have_count(2)
    assert wrong_outputs(page) == []
    words, other = explorer(page, 0), explorer(page, 1)
    pictures, numbers = page.locator(".jp-OutputArea-output img"), page.locator(".wid-static p")
    expect(pictures).to_have_count(2)
    for hidden in (pictures.first, numbers.first):
        expect(hidden).to_be_hidden()
    by_keyboard(page, words)
    by_mouse_and_by_typing(page, words, other)
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    expect(words.locator(".after").first).to_have_css("background-color", "rgb(215, 154, 222)")
    expect(words.locator(".soft").first).to_have_css("color", "rgb(163, 173, 184)")
    page.set_viewport_size({"width": 400, "height": 900})
    for output in page.locator(".jp-OutputArea-output:has(.wid-knobs)").all():
        sizes = output.evaluate("node => [node.scrollWidth, node.clientWidth]")
        assert sizes[0] <= sizes[1]
    bars = other.locator(".bar").evaluate_all("all => all.map(one => one.clientWidth)")
    assert max(bars) >= 40
    assert problems == []
    reopen(page, lab, notebook, restarted=True)
    for shown in (pictures.first, pictures.last, numbers.first, numbers.last):
        expect(shown).to_be_visible()
    expect(words).to_have_count(0)


def by_keyboard(page: Page, words: Locator) -> None:
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


def by_mouse_and_by_typing(page: Page, words: Locator, other: Locator) -> None:
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
