"""The page for teachers and the page with slides. They are made from TEACHING.md; site.py writes them.

Each slide is made from one row of a table in TEACHING.md. The row contains a link to a notebook cell, whose
stored picture the slide shows, and a sentence.
"""

from __future__ import annotations

import re
from html import escape

import nbformat
from nbformat import NotebookNode

from helpers.drawing.svg import PALETTE
from helpers.stepper.page import assemble_page
from tools import launch

TEACHING_FILE = launch.ROOT / "TEACHING.md"
LINK = re.compile(r"\[(?P<text>[^]]+)\]\((?P<path>notebooks/\w+\.ipynb)#cell-id=(?P<id>[\w-]+)\)")
SLIDE = re.compile(rf"^\| {LINK.pattern} \| (?P<sentence>.+) \|$", re.MULTILINE)
THEME_VARIABLES = [
    "".join(f"--wid-{name.replace(' ', '-')}:{both[n]};" for name, both in PALETTE.items()) for n in (0, 1)
]
SLIDES_STYLE = """
html { scroll-snap-type: y mandatory; }
body { max-width: none; margin: 0; padding: 0; }
.slide { display: flex; flex-direction: column; align-items: center; gap: 4vh; box-sizing: border-box;
  position: relative; height: 100vh; padding: 6vh 6vw 8vh; scroll-snap-align: start; break-after: page; }
.slide figure { flex: 1; width: 100%; min-height: 0; margin: 0; }
.slide :is(svg, img) { width: 100%; height: 100%; max-width: none !important; object-fit: contain;
  fill: var(--wid-ink); }
/* a small screen: as high as the letters need */
@media (max-width: 600px), (max-height: 500px) {
  .slide { height: auto; min-height: 100vh; justify-content: center; padding: 6vh 2vw 8vh; }
  .slide figure { flex: none; text-align: center; }
  .slide :is(svg, img) { height: auto; max-width: 460px !important; }
}
.slide p { max-width: 32em; margin: 0; font-size: clamp(20px, min(4.6vh, 5vw), 48px); line-height: 1.25;
  text-align: center; text-wrap: balance; }
.slide a { position: absolute; right: 3vw; bottom: 2.5vh; color: var(--soft); font-size: 14px; }
@page { size: 1280px 720px; margin: 0; }
"""
KEYS = """<script>
const slides = [...document.querySelectorAll(".slide")];
const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
addEventListener("keydown", (event) => {
  const at = slides.findLastIndex((slide) => slide.getBoundingClientRect().top < innerHeight / 2);
  const to = { Home: 0, End: slides.length - 1 }[event.key] ?? at + steps[event.key];
  if (Number.isNaN(to)) return;
  event.preventDefault();
  slides[Math.max(0, Math.min(to, slides.length - 1))].scrollIntoView();
});
</script>"""


def teaching_text() -> str:
    """Return the Markdown of TEACHING.md."""
    return TEACHING_FILE.read_text(encoding="utf-8")


def linked_cell(link: re.Match[str]) -> NotebookNode:
    """Return the notebook cell to which a link in TEACHING.md leads.

    Args:
        link: a match of LINK or SLIDE.

    Raises:
        ValueError: the notebook has no cell with the link's cell id.
    """
    book = nbformat.read(launch.ROOT / link["path"], as_version=4)
    for cell in book.cells:
        if cell.id == link["id"]:
            return cell
    raise ValueError(f"TEACHING.md: {link['path']} has no cell {link['id']}")


def stored_picture(cell: NotebookNode) -> str:
    """Return the HTML of a cell's stored picture, with a text alternative. SVG is preferred to PNG.

    Raises:
        ValueError: the cell's outputs contain no picture.
    """
    shown = [output.data for output in cell.get("outputs", []) if "data" in output]
    alt = next((escape(data["text/plain"]) for data in shown if "image/png" in data), "")
    html = "".join(data.get("text/html", "") for data in shown)
    if drawn := re.search(r'<svg (viewBox="[^"]+")[^>]*>(.*?)</svg>', html, re.DOTALL):
        return f'<svg {drawn[1]} role="img" aria-label="{alt}">{drawn[2]}</svg>'
    for data in shown:
        if "image/png" in data:
            png = data["image/png"].replace("\n", "")
            return f'<img alt="{alt}" src="data:image/png;base64,{png}">'
    raise ValueError(f"cell {cell.id} has no picture")


def slides_page() -> str:
    """Return an HTML page with all slides.

    Readers move between slides with keys or by scrolling. Each slide is printed on a sheet of its own.
    """
    found = list(SLIDE.finditer(teaching_text()))
    parts = []
    for n, one in enumerate(found, 1):
        sentence = re.sub(r"\*(.+?)\*", r"<em>\1</em>", escape(one["sentence"]))
        address = f"{one['path'].replace('.ipynb', '.html')}#cell-id={one['id']}"
        label = f'<a href="{address}">notebook {one["text"]} · {n} of {len(found)}</a>'
        shown = stored_picture(linked_cell(one))
        parts.append(f'<div class="slide"><figure>{shown}</figure><p>{sentence}</p>{label}</div>')
    light, dark = THEME_VARIABLES
    style = f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}{SLIDES_STYLE}"
    return assemble_page("Slides", "\n".join(parts) + KEYS, {}, style=style)


def teaching_page() -> str:
    """Return the Markdown of the page for teachers, whose links to the site's pages are relative."""
    return teaching_text().replace(launch.site_url(), "").replace("]()", "](index.html)")
