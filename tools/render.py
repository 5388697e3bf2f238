"""Render a notebook as an HTML page with its stored outputs and interactive views.

The page needs no network. A notebook's stored outputs do not contain the data of its views. Therefore a copy
of the notebook is run, and the widget state of this run is written to the page. If scripts are disabled, the
page shows each view's stored picture instead.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

from helpers.stepper.page import ViewData, assemble_page
from tools import launch
from tools.notebooks import WIDGET_VIEW, execute_notebook
from tools.teaching import DARK_FIGURE_STYLE

EXPORTER = HTMLExporter(template_name="basic", exclude_anchor_links=True)
STATE = "application/vnd.jupyter.widget-state+json"
FORMULA = re.compile(r"(`+).*?\1|(?P<signs>\$\$?)(?P<tex>[^$`]+?)(?P=signs)", re.DOTALL)
LIGHT, DARK = (HtmlFormatter(style=name).get_style_defs(".highlight") for name in ("default", "github-dark"))
STYLE = """
pre { margin: 0; padding: 10px 12px; overflow-x: auto; font: 13px/1.5 ui-monospace, Consolas, monospace; }
.highlight pre { border: 1px solid var(--line); border-radius: 6px; }
.code_cell { margin: 12px 0 20px; }
.text_cell > * > * > :not(table, details) { max-width: 40em; }
.output { margin-top: 10px; overflow-x: auto; }
.output:has(.wid-live) :is(.wid-static, .output_area:has(+ .output_area .wid-static)) { display: none; }
.cell:target { scroll-margin-top: 12px; box-shadow: -5px 0 var(--paper), -8px 0 var(--soft); }
.prompt:not([class*="wid-"]) { display: none; }
/* a figure as JupyterLab shows it: as SVG, in the theme of the page, in place of its PNG */
.output_area .wid-figure:has(> svg) { display: block !important; }
.output_area:has(+ .output_area .wid-figure > svg) { display: none; }
img { max-width: 100%; height: auto; border-radius: 6px; }
table { border-collapse: collapse; font-size: 14px; }
:is(th, td):not(.wid-view *) { padding: 3px 10px; text-align: left; vertical-align: top; }
:is(th, td):not([style], .wid-view *) { border-bottom: 1px solid var(--line); }
details { margin: 10px 0; }
summary { cursor: pointer; font-weight: 600; }
math { font-size: 1.05em; }
p:has(> math[display="block"]) { overflow-x: auto; }
@media (max-width: 600px) { .rendered_html table { display: block; overflow-x: auto; } }
mtd:first-child { text-align: end; }
mtd + mtd { text-align: start; }
"""
STYLE += f"{LIGHT}\n@media (prefers-color-scheme: dark) {{ {DARK} {DARK_FIGURE_STYLE} }}"


def render_notebook(path: Path) -> str:
    """Return the notebook at `path` as an HTML page.

    A copy of the notebook is run if its outputs contain widgets.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell of the copy raised an exception.
    """
    book = nbformat.read(path, as_version=4)
    views = extract_widget_state(book, path.parent)
    book.cells = [
        cell for cell in book.cells if not cell.metadata.get("jupyter")
    ]  # without the folded cell for Colab
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = FORMULA.sub(formula_to_mathml, cell.source)
    body, _ = EXPORTER.from_notebook_node(book)
    back = '<p><a href="../index.html">Watch it decode</a> · <a href="../search.html">Search</a></p>\n'
    title = re.search(r"^# (.+)$", book.cells[0].source, re.MULTILINE)
    return assemble_page(title[1] if title else path.stem, back + rewrite_links(body), views, style=STYLE)


def extract_widget_state(book: NotebookNode, folder: Path) -> dict[str, ViewData]:
    """Run a copy of a notebook, and return the data and options of each view, by the id of its HTML element.

    In `book`, the output of each view is replaced by an empty HTML element with this id. The outputs of
    widgets that need a kernel are removed. The stored pictures of all widgets are kept.

    Args:
        book: the notebook, which is changed.
        folder: the working directory of the kernel.
    """
    executed = nbformat.from_dict(book)
    if any(map(widget_outputs, book.cells)):
        execute_notebook(executed, folder, keep_widgets=True)
    states = executed.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    views: dict[str, ViewData] = {}
    for cell, executed_cell in zip(book.cells, executed.cells, strict=True):
        same = len(widget_outputs(executed_cell)) == len(widget_outputs(cell))
        for output, new in zip(
            widget_outputs(cell), widget_outputs(executed_cell if same else cell), strict=True
        ):
            state = states.get(new.data[WIDGET_VIEW]["model_id"], {}).get("state", {})
            output.data = {"text/html": " "}
            if "view" in state.get("options", {}):
                name = f"view{len(views)}"
                views[name] = ViewData(state["data"], state["options"])
                output.data = {"text/html": f'<div class="view" id="{name}"></div>'}
    return views


def widget_outputs(cell: NotebookNode) -> list[NotebookNode]:
    """Return those outputs of a cell that show a widget."""
    return [output for output in cell.get("outputs", []) if WIDGET_VIEW in output.get("data", {})]


def formula_to_mathml(match: re.Match[str]) -> str:
    """Return the MathML for a match of FORMULA.

    FORMULA also matches code between backticks, so that dollar signs in it are not read as formulas. Code is
    returned unchanged.
    """
    if not match["tex"]:
        return match[0]
    tex = html.unescape(match["tex"]).replace("{aligned}", "{split}")  # the name that the converter knows
    return convert(tex, display="block" if match["signs"] == "$$" else "inline")


def rewrite_links(body: str) -> str:
    """Rewrite the links in the HTML of a notebook, so that they work on the site.

    Links to notebooks lead to the notebooks' pages. Links to other files of the project lead to GitHub.
    """
    body = re.sub(r'href="(\w+)\.ipynb', r'href="\1.html', body)
    return body.replace('href="../', f'href="{launch.GITHUB}{launch.repository_name()}/blob/main/')
