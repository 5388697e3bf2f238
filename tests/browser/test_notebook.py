"""Views, the explorer and a figure in a real JupyterLab: run, used, opened again, not trusted."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path

import pytest
from nbconvert import HTMLExporter
from nbformat import v4
from playwright.sync_api import Page, expect

from helpers import plots
from helpers.recording.toy import record_toy
from helpers.stepper import StepTime
from tests.browser.lab import Lab, open_notebook, reopen, run_all, wrong_outputs
from tests.browser.stepper_page import read
from tests.browser.test_live_file import LONG, choose, model_file
from tests.written import unit

pytestmark = pytest.mark.browser

CELLS = (
    "from helpers import explorers, plots, toy\nfrom helpers.recording.toy import record_toy\n"
    "from helpers.stepper import Live, Stepper, StepTime\n\n"
    "plots.score_triangle(record_toy(max_new_tokens=3, ban_eos=True))",
    "Stepper(record_toy())",
    "Stepper(record_toy(ban_eos=True, max_new_tokens=30), 'lab', start='prefill')",
    "StepTime(users=2)",
    "Live()",
    "explorers.next_word(toy.step(toy.PROMPT), toy.VOCABULARY)",
)
LIVE = [["figure"], *[["live"]] * 5]
STILL = [["figure"], *[["words", "words"]] * 3, *[["picture", "words"]] * 2]  # three that no page shows
# What is said of any widget whose kernel is gone, and where it takes longer than two seconds to begin.
NOT_OURS = re.compile("widget model not found|Failed to initialize model")
# Which outputs of each cell take room on the page.
IN_SIGHT = """() => [...document.querySelectorAll('.jp-CodeCell .jp-OutputArea')].map((area) =>
  [...area.querySelectorAll(':scope > .jp-OutputArea-child')]
    .filter((child) => child.getBoundingClientRect().height > 0)
    .map((child) => child.querySelector('.wid-view, .wid-knobs') ? 'live'
      : child.querySelector('img') ? 'picture'
      : child.querySelector('.wid-figure svg') ? 'figure' : child.textContent.trim() && 'words')
    .filter(Boolean))"""
# Which pictures are in sight, the smallest letters as seen, and words of a hidden figure that leak out.
FIGURE = """() => {
  const seen = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 1;
  const texts = [...document.querySelectorAll('.wid-figure svg text')].filter(seen);
  const size = (t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a;
  return {
    png: [...document.querySelectorAll('.jp-OutputArea img, .output img')].filter(seen).length,
    svg: [...document.querySelectorAll('.wid-figure svg')].map(seen),
    letters: Math.min(...texts.map(size)),
    leak: [...document.querySelectorAll('.wid-figure:not(:has(svg))')].filter(seen).length,
  };
}"""
SENT = """() => {
  const sent = [];
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  kernel.anyMessage.connect((_, message) => {
    if (message.direction === 'send') sent.push(message.msg.header.msg_type);
  });
  const [back, next] = document.querySelectorAll('.wid-buttons button');
  for (let i = 0; i < 200; i++) (i % 3 ? next : back).click();
  return new Promise((done) => setTimeout(() => done(sent), 500));
}"""


def test_a_notebook(lab: Lab, page: Page, problems: list[str], tmp_path: Path) -> None:
    """Run; used; opened again with its kernel alive; after a restart; somebody else's, not trusted."""
    notebook = lab.write(*CELLS)
    open_notebook(page, lab, notebook, dark=True)
    run_all(page)
    expect(page.locator(".wid-view")).to_have_count(4)
    assert page.evaluate(IN_SIGHT) == LIVE
    assert wrong_outputs(page) == []
    in_each_theme_and_width(page)
    what_is_typed_is_no_command(page)
    the_explorer_turns(page)
    a_model_writes(page, model_file(tmp_path))
    assert [kind for kind in page.evaluate(SENT) if kind.startswith("comm")] == [], "the kernel hears nothing"
    reopen(page, lab, notebook, restarted=False)
    expect(page.locator(".wid-view")).to_have_count(4)
    assert page.evaluate(IN_SIGHT) == LIVE
    assert [problem for problem in problems if not NOT_OURS.search(problem)] == []
    lab.shut_down_kernels()
    story, other = page.locator(".wid-stepper").all()
    story.get_by_role("button", name="Next").click()
    expect(story).to_have_attribute("data-event", "2")
    expect(other).to_have_attribute("data-event", "1")
    case = page.locator(".wid-step_time")
    case.get_by_role("slider", name="users at once").press("End")
    time = unit(StepTime(users=1000).step.total, "s")
    expect(case.locator(".wid-sentence")).to_contain_text(f" {time}, ")
    reopen(page, lab, notebook, restarted=True)
    expect(page.locator(".jp-OutputArea-output", has_text="model not found")).not_to_have_count(0)
    assert page.evaluate(IN_SIGHT) == STILL
    path = lab.root / notebook
    book = json.loads(path.read_text(encoding="utf-8"))
    book["metadata"]["somebody"] = "else"  # another content: JupyterLab has not signed it
    clone = path.with_name("clone.ipynb")
    clone.write_text(json.dumps(book), encoding="utf-8")
    open_notebook(page, lab, str(clone.relative_to(lab.root)), anew=True)
    expect(page.locator(".jp-OutputArea-output.jp-mod-trusted")).to_have_count(0)
    assert page.evaluate(IN_SIGHT)[1:] == STILL[1:]
    figure = page.evaluate(FIGURE)
    assert (figure["png"], figure["svg"], figure["leak"]) == (3, [], 0)
    said = page.locator(".jp-OutputArea-output p").all_inner_texts()
    assert any(text.startswith("KV cache keeps ") for text in said)
    expect(page.locator(".jp-OutputArea-output :is(style, svg)")).to_have_count(0)
    run_all(page)
    expect(page.locator(".wid-view")).to_have_count(4)
    expect(page.locator(".wid-stepper").first).to_have_attribute("data-event", "1")
    assert page.evaluate(IN_SIGHT) == LIVE
    assert [problem for problem in problems if not NOT_OURS.search(problem)] == []


def in_each_theme_and_width(page: Page) -> None:
    """Made under a dark theme, all follow when it is changed; 400 px are enough."""
    words = page.locator(".wid-knobs")
    for theme, width, ink, after in (
        ("Dark", 1200, "rgb(230, 232, 235)", "rgb(215, 154, 222)"),
        ("Light", 400, "rgb(27, 31, 36)", "rgb(138, 58, 143)"),
    ):
        page.evaluate(
            f"jupyterapp.commands.execute('apputils:change-theme', {{ theme: 'JupyterLab {theme}' }})"
        )
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator(".wid-view.wid-dark")).to_have_count(4 * (theme == "Dark"))
        expect(page.locator(".wid-figure svg text").locator("visible=true").first).to_have_css("fill", ink)
        expect(words.locator(".after").first).to_have_css("background-color", after)
        figure = page.evaluate(FIGURE)
        assert (figure["png"], figure["svg"]) == (0, [True])
        assert figure["letters"] >= (14 if width > 800 else 8.5)
    page.wait_for_function("() => document.querySelector('.wid-stepper').offsetWidth < 300")
    sizes = "(all) => all.map((one) => one.scrollWidth - one.clientWidth)"
    assert max(page.locator(".jp-CodeCell .jp-OutputArea").evaluate_all(sizes)) <= 0
    assert max(words.locator(".bar").evaluate_all("(all) => all.map((one) => one.clientWidth)")) >= 40
    page.set_viewport_size({"width": 1200, "height": 900})


def what_is_typed_is_no_command(page: Page) -> None:
    """Whatever has the focus, JupyterLab's keys delete no cell."""
    page.locator(".wid-stepper").first.click(position={"x": 8, "y": 8})
    for key in ("d", "d", "x", "ArrowRight", "a", "b", "z", "c"):
        page.keyboard.press(key)
    assert read(page)["at"][:2] == ["2", "off"]
    views = page.locator(".wid-view, .wid-knobs")
    views.locator("details").evaluate_all("(all) => all.forEach((fold) => { fold.open = true; })")
    controls = views.locator(":is(button, input, select, summary, textarea, [tabindex], [contenteditable])")
    kinds = controls.evaluate_all("(nodes) => [...new Set(nodes.map((node) => node.localName))].sort()")
    assert kinds == ["button", "div", "input", "select", "summary", "textarea"]
    for k in range(controls.count()):
        controls.nth(k).evaluate("(node) => node.focus()")
        page.keyboard.press("d")
        page.keyboard.press("d")
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(len(CELLS))


def the_explorer_turns(page: Page) -> None:
    """By keys, by mouse, by typing; a reset leads back."""
    words = page.locator(".wid-knobs")
    slider = words.get_by_role("slider", name="top-k of 4")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(words).to_contain_text("2 of 4 words can be drawn; nice goes from 72.3% to 73.1%")
    expect(words.get_by_text("top-k keeps the 2 largest")).to_have_count(2)
    words.get_by_role("button", name="Reset").press("Enter")
    expect(words).to_contain_text("4 of 4 words can be drawn")
    words.get_by_label("temperature, type a value").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("0.5")
    page.keyboard.press("Enter")
    expect(words).to_contain_text("nice goes from 72.3% to 88.1%")
    words.locator(".widget-slider .noUi-base").nth(1).click(position={"x": 1, "y": 2})
    expect(slider).to_have_attribute("aria-valuetext", "1")
    expect(words.locator(".wid-said")).to_have_attribute("aria-live", "polite")


def a_model_writes(page: Page, file: Path) -> None:
    """JupyterLab has its own mind about Enter and Escape."""
    box = page.locator(".wid-writer > textarea")
    box.fill("Mia writes")
    box.press("Enter")
    page.locator(".wid-writer .wid-token-said").nth(1).wait_for(timeout=LONG)
    page.keyboard.press("Escape")
    page.locator(".wid-writer > .wid-acts").wait_for()
    own = page.locator(".wid-own")
    choose(own, file)
    own.locator("textarea").press("Enter")
    own.locator(".wid-acts").wait_for(timeout=LONG)
    own.get_by_role("button", name="on the board").press("Enter")
    own.locator(".wid-stepper").wait_for()


@pytest.mark.parametrize("page_of", ["nbconvert", "another editor"])
def test_one_picture_of_a_figure_is_in_sight_elsewhere(page: Page, page_of: str) -> None:
    """In a page of nbconvert it is the SVG, in another editor's the PNG."""
    picture = plots.score_triangle(record_toy(ban_eos=True))
    png = {"image/png": b64encode(picture.png()).decode(), "text/plain": picture.alt}
    outputs = [v4.new_output("display_data", data) for data in (png, {"text/html": picture.html()})]
    cell = v4.new_code_cell("figure", execution_count=1, outputs=outputs)
    html = HTMLExporter(embed_images=True).from_notebook_node(v4.new_notebook(cells=[cell]))[0]
    other = f'<div class="output"><img src="data:image/gif;base64,R0" width=9></div>{picture.html()}'
    page.set_content(html if page_of == "nbconvert" else other)
    seen = page.evaluate(FIGURE)
    assert (seen["png"], sum(seen["svg"]), seen["leak"]) == (
        (0, 1, seen["leak"]) if page_of == "nbconvert" else (1, 0, 0)
    )
