"""The stepper in a real JupyterLab: the four states of a notebook, several at once, keys, themes, widths."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Locator, Page, expect

from helpers.recording.toy import record_toy
from tests.browser.lab import Lab, open_notebook, reopen, run_all, wrong_outputs
from tests.browser.stepper_page import grid, read
from tests.browser.test_stepper_page import CONTRAST
from tests.expected import expected_marks

pytestmark = pytest.mark.browser

MAKE = """from helpers.recording.toy import record_toy
from helpers.stepper import Stepper
stepper = Stepper(record_toy())"""
CELL = f"{MAKE}\nstepper"
GONE = "widget model not found"  # JupyterLab's widget manager, of any widget whose kernel is gone


def live(page: Page, nth: int = 0) -> Locator:
    return page.locator(".wid-stepper").nth(nth)


def but_gone(problems: list[str]) -> list[str]:
    return [problem for problem in problems if GONE not in problem]


def in_sight(page: Page) -> list[str]:
    """Which outputs of the first code cell take room on the page: "picture", "numbers", "live", or text."""
    return page.evaluate(
        """() => [...document.querySelector('.jp-CodeCell .jp-OutputArea').children]
          .filter((child) => child.matches('.jp-OutputArea-child'))
          .filter((child) => child.getBoundingClientRect().height > 0)
          .map((child) => child.querySelector('.wid-stepper') ? 'live'
            : child.querySelector('img') ? 'picture'
            : child.querySelector('table') ? 'numbers' : child.textContent.trim())
          .filter((name) => name)"""
    )


def test_keys_and_clicks_stay_in_the_stepper(lab: Lab, page: Page, problems: list[str]) -> None:
    """Whatever in it has the focus, JupyterLab's keys delete no cell, and the kernel hears nothing."""
    page.set_viewport_size({"width": 560, "height": 900})
    stepper = "Stepper(record_toy(ban_eos=True, max_new=30), 'lab', start='prefill')"
    open_notebook(page, lab, lab.write(CELL, stepper, "1 + 1"))
    run_all(page)
    live(page).click(position={"x": 8, "y": 8})
    for key in ("d", "d", "x", "ArrowRight", "a", "b", "m", "c"):
        page.keyboard.press(key)
    assert page.locator(".jp-CodeCell").count() == 3
    assert read(page)["at"][:2] == ["2", "off"]
    page.locator(".wid-stepper .wid-more").evaluate("(fold) => { fold.open = true; }")
    controls = page.locator(".wid-stepper :is(button, input, select, summary, textarea, [tabindex])")
    kinds = controls.evaluate_all("(nodes) => [...new Set(nodes.map((node) => node.localName))].sort()")
    assert kinds == ["button", "div", "input", "select", "summary", "textarea"]
    for k in range(controls.count()):
        controls.nth(k).focus()
        page.keyboard.press("d")
        page.keyboard.press("d")
    assert page.locator(".jp-CodeCell").count() == 3
    sent = page.evaluate(
        """() => {
          const sent = [];
          const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
          kernel.anyMessage.connect((_, message) => {
            if (message.direction === 'send') sent.push(message.msg.header.msg_type);
          });
          const [back, next] = document.querySelectorAll('.wid-buttons button');
          for (let i = 0; i < 200; i++) (i % 3 ? next : back).click();
          return new Promise((done) => setTimeout(() => done(sent), 500));
        }"""
    )
    assert [kind for kind in sent if kind.startswith("comm")] == []
    assert problems == []


def test_each_keeps_its_own_state_and_a_cell_run_again_starts_anew(
    lab: Lab, page: Page, problems: list[str]
) -> None:
    open_notebook(page, lab, lab.write(CELL, "stepper", "Stepper(record_toy(ban_eos=True), start=0)"))
    run_all(page)
    expect(page.locator(".wid-stepper")).to_have_count(3)
    live(page, 0).get_by_role("button", name="Next").click()
    live(page, 2).get_by_role("group", name="KV cache").get_by_role("button", name="off").click()
    states = [
        (live(page, n).get_attribute("data-event"), live(page, n).get_attribute("data-cache"))
        for n in range(3)
    ]
    assert states == [("2", "on"), ("1", "on"), ("0", "off")]
    run_all(page)
    expect(page.locator(".wid-stepper")).to_have_count(3)
    expect(live(page)).to_have_attribute("data-event", "1")
    assert problems == []
    lab.lost = True
    page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    live(page).get_by_role("button", name="Next").click()
    assert grid(read(page), 5) == expected_marks(record_toy(), "cached", 2), "it needs no kernel"
    run_all(page)
    expect(live(page)).to_have_attribute("data-event", "1")
    assert but_gone(problems) == []


def test_the_four_states_of_a_notebook(lab: Lab, page: Page, problems: list[str]) -> None:
    """Run; opened again with its kernel alive; after a restart; somebody else's, not trusted and not run."""
    notebook = lab.write(CELL)
    open_notebook(page, lab, notebook, dark=True)
    run_all(page)
    expect(live(page)).to_be_visible()
    assert in_sight(page) == ["live"]
    assert wrong_outputs(page) == []
    follow_theme_and_width(page)
    reopen(page, lab, notebook, restarted=False)
    expect(live(page)).to_be_visible()
    assert in_sight(page) == ["live"]
    live(page).get_by_role("button", name="Next").click()
    assert read(page)["at"][0] == "2"
    assert problems == []
    reopen(page, lab, notebook, restarted=True)
    expect(page.locator(".jp-OutputArea-output", has_text="model not found")).to_be_attached()
    assert in_sight(page) == ["picture", "numbers"]
    path = lab.root / notebook
    book = json.loads(path.read_text(encoding="utf-8"))
    book["metadata"]["somebody"] = "else"  # another content: JupyterLab has not signed it
    clone = path.with_name("clone.ipynb")
    clone.write_text(json.dumps(book), encoding="utf-8")
    open_notebook(page, lab, str(clone.relative_to(lab.root)), anew=True)
    assert page.locator(".jp-OutputArea-output.jp-mod-trusted").count() == 0
    assert in_sight(page) == ["picture", "numbers"]
    rows = page.locator(".jp-OutputArea-output table tr").all_inner_texts()
    assert rows[5] == "next word\tnice (72.3%)\t<eos> (81.2%)\t<eos> (81.2%)"
    assert page.locator(".jp-OutputArea-output style, .jp-OutputArea-output svg").count() == 0
    assert but_gone(problems) == []
    run_all(page)
    expect(live(page)).to_be_visible()
    assert in_sight(page) == ["live"]


def follow_theme_and_width(page: Page) -> None:
    """Made under a dark theme, it follows when the theme is changed, and fits into 284 px."""
    expect(page.locator(".wid-stepper.wid-dark")).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    background = "(node) => getComputedStyle(node).backgroundColor"
    dark = live(page).evaluate(background)
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    expect(page.locator(".wid-stepper:not(.wid-dark)")).to_be_visible()
    assert live(page).evaluate(background) != dark
    assert page.evaluate(CONTRAST) == []
    page.set_viewport_size({"width": 400, "height": 900})
    narrow = "node => 250 < node.getBoundingClientRect().width && node.getBoundingClientRect().width < 300"
    page.wait_for_function(f"() => ({narrow})(document.querySelector('.wid-stepper'))")
    room = page.locator(".jp-CodeCell .jp-OutputArea").evaluate(
        "node => [node.scrollWidth, node.clientWidth]"
    )
    assert room[0] <= room[1]
    assert page.locator(".wid-contexts").is_visible()
    page.set_viewport_size({"width": 1200, "height": 900})
