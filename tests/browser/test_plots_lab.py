"""A figure in the browser: one picture in sight wherever a notebook is met, legible at any width."""

from __future__ import annotations

from base64 import b64encode

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Page, expect

from helpers import plots
from helpers.recording.toy import record_toy
from tests.browser.lab import Lab, open_notebook, run_all

pytestmark = pytest.mark.browser

DRAW = """from helpers import plots
from helpers.recording.toy import record_toy

plots.triangle(record_toy(max_new=3, ban_eos=True))"""
# Which pictures are in sight, the smallest letters as seen, and words of a hidden figure that leak out.
SEEN = """() => {
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


def test_run_it_is_svg_in_the_pages_theme_and_width(lab: Lab, page: Page) -> None:
    open_notebook(page, lab, lab.write(DRAW))
    run_all(page)
    page.locator(".wid-figure svg").first.wait_for()
    for theme, width, ink in (("Light", 1200, "rgb(27, 31, 36)"), ("Dark", 400, "rgb(230, 232, 235)")):
        page.evaluate(
            f"jupyterapp.commands.execute('apputils:change-theme', {{ theme: 'JupyterLab {theme}' }})"
        )
        page.set_viewport_size({"width": width, "height": 900})
        wide, narrow = (page.locator(".wid-figure svg").nth(n) for n in (0, 1))
        expect(wide).to_be_visible(visible=width > 800)
        expect(narrow).to_be_visible(visible=width < 800)
        expect(page.locator(".wid-figure svg text").locator("visible=true").first).to_have_css("fill", ink)
        seen = page.evaluate(SEEN)
        assert seen["png"] == 0
        assert seen["letters"] >= 11


def stored() -> nbformat.NotebookNode:
    """A notebook with a figure in its outputs that this machine never ran."""
    picture = plots.triangle(record_toy(ban_eos=True))
    png = nbformat.v4.new_output(
        "display_data", {"image/png": b64encode(picture.png()).decode(), "text/plain": picture.alt}
    )
    html = nbformat.v4.new_output("display_data", {"text/html": picture.html(), "text/plain": " "})
    cell = nbformat.v4.new_code_cell("figure", execution_count=1, outputs=[png, html])
    book = nbformat.v4.new_notebook(cells=[cell])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return book


def test_not_trusted_it_is_the_png_alone(lab: Lab, page: Page) -> None:
    path = lab.write("")
    nbformat.write(stored(), lab.root / path)
    open_notebook(page, lab, path)
    page.locator(".jp-OutputArea img").wait_for()
    seen = page.evaluate(SEEN)
    assert (seen["png"], seen["svg"], seen["leak"]) == (1, [], 0)


def test_in_a_page_of_nbconvert_it_is_the_svg_alone(page: Page) -> None:
    page.set_content(HTMLExporter(embed_images=True).from_notebook_node(stored())[0])
    seen = page.evaluate(SEEN)
    assert (seen["png"], seen["svg"]) == (0, [True, False])


def test_in_another_editors_page_it_is_the_png_alone(page: Page) -> None:
    html = stored().cells[0].outputs[1].data["text/html"]
    page.set_content(f'<div class="output"><img src="data:image/gif;base64,R0" width=9></div>{html}')
    seen = page.evaluate(SEEN)
    assert (seen["png"], any(seen["svg"]), seen["leak"]) == (1, False, 0)
