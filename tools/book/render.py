"""What the book needs of a notebook and of a page, besides what Sphinx and MyST-NB do.

A stored notebook has each picture twice, each view as a picture, and links to files of the repository. In the
book, a picture is an SVG in the theme's colours, a view is live under its picture, each cell has its id as an
anchor, and links lead to the book's pages or to GitHub. Nothing is run: the data of a view is in its still.
"""

from __future__ import annotations

import base64
import itertools
import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import nbformat
from nbformat import NotebookNode

from helpers.drawing.outputs import STATIC
from helpers.stepper.page import ViewData, view_scripts
from helpers.stepper.still import FOLDER, Still
from tools import launch
from tools.book.build import raw_html
from tools.notebooks import WIDGET_VIEW

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HEADING = re.compile(r"\A# .+\n?")
RUN = re.compile(r"run it in (\[Colab\]\S+) or (\[Binder\]\S+)")  # in a first cell; see launch.launch_links
HERE_IT_IS_STORED = (
    r"what follows was computed before; to change it, run it in \1, in \2, or "
    f"[on your machine]({launch.GITHUB}{launch.repository_name()}#open-the-notebooks)"
)
DARK = re.compile(r'(?:body)?\[data-jp-theme-light="false"\]')
# The page cannot send anything anywhere; only a page with a published model may fetch it.
POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "script-src 'unsafe-inline' 'self' file:; style-src 'unsafe-inline' 'self' file:; "
    "font-src 'self' file:; img-src 'self' file: data:; media-src 'self' file:; worker-src blob:; {connect}"
    "base-uri 'self'; form-action 'self' file:\">"
)
# A server shows the page 404 under any address, so that its links have to begin at the site's root.
ROOT_OF_LINKS = f"""<script>
if (location.protocol !== "file:") document.write('<base href="{urlparse(launch.site_url()).path}">');
</script>"""


@cache
def stills() -> dict[bytes, Still]:
    """Return the stills of all views, by their pictures."""
    found = (Still.load(path.stem) for path in FOLDER.glob("*.json"))
    return {still.png: still for still in found if still}


def read_source(app: Sphinx, name: str, content: list[str]) -> None:
    """Change the source of a page before Sphinx parses it: an event handler for `source-read`."""
    if name.startswith("notebooks/"):
        content[0] = nbformat.writes(book_notebook(nbformat.reads(content[0], as_version=4)))


def book_notebook(book: NotebookNode) -> NotebookNode:
    """Return a notebook as the book shows it. The notebook itself is changed."""
    views: dict[str, ViewData] = {}
    cells = []
    for cell in book.cells:
        if cell.metadata.get("jupyter"):  # the folded cell for Colab
            continue
        anchor = f'<span id="cell-id={cell.id}"></span>\n\n'
        if cell.cell_type == "code":
            cells.append(nbformat.v4.new_markdown_cell(anchor))
            cell.outputs = book_outputs(cell.outputs, views)
        else:
            title = HEADING.match(cell.source)
            at = title.end() if title else 0
            text = RUN.sub(HERE_IT_IS_STORED, cell.source[at:], count=1)
            cell.source = f"{cell.source[:at]}\n{anchor}{text}"
        cells.append(cell)
    if views:
        cells.append(nbformat.v4.new_markdown_cell(raw_html(view_scripts(views))))
    book.cells = cells
    return book


def book_outputs(outputs: list[NotebookNode], views: dict[str, ViewData]) -> list[NotebookNode]:
    """Return a cell's outputs, each picture and each view once. The data of views is added to `views`."""
    shown: list[NotebookNode] = []
    still: Still | None = None
    for output, following in itertools.zip_longest(outputs, outputs[1:], fillvalue=NotebookNode()):
        data, html = output.get("data", {}), output.get("data", {}).get("text/html", "")
        if "image/png" in data:
            still = stills().get(base64.b64decode(data["image/png"]))
            if still:
                name = f"view{len(views)}"
                views[name] = ViewData(still.data, still.options)
                output.data = {"text/html": view_html(name, still)}
            elif STATIC in following.get("data", {}).get("text/html", ""):  # a widget that needs a kernel
                output.data = {"text/html": picture_html(data["image/png"], **output.metadata["image/png"])}
            else:  # a figure, which follows as SVG
                continue
        elif WIDGET_VIEW in data or (STATIC in html and still):
            continue
        shown.append(output)
    return shown


def picture_html(png: str, alt: str, width: int) -> str:
    """Return the HTML of a picture that is encoded as base64."""
    return f'<img alt="{escape(alt)}" width="{width}" src="data:image/png;base64,{png.strip()}">'


def view_html(name: str, still: Still) -> str:
    """Return the HTML of a view: the element in which it is live, and its still, which is then hidden."""
    return f'<div class="view" id="{name}"></div><div class="still">{still.html()}</div>'


def rewrite_links(body: str) -> str:
    """Rewrite the links in the HTML of a page, so that they work on the site.

    Links to notebooks lead to the notebooks' pages. Links to other files of the project lead to GitHub.
    """
    body = re.sub(r'href="((?:notebooks/)?\w+)\.ipynb', r'href="\1.html', body)
    return body.replace('href="../', f'href="{launch.GITHUB}{launch.repository_name()}/blob/main/')


def complete_page(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Complete what Sphinx writes to a page: an event handler for `html-page-context`."""
    body = context["body"] = DARK.sub('[data-theme="dark"]', rewrite_links(context.get("body", "")))
    if 'id="views"' in body:
        app.add_css_file("views.css")
    app.add_js_file("views.js" if 'id="views"' in body else "page.js", loading_method="defer")
    context["policy"] = POLICY.format(connect="connect-src 'self'; " if '"published"' in body else "")
    if name == "404":
        context["metatags"] = ROOT_OF_LINKS + context.get("metatags", "")
    for group in context["header_buttons"]:
        if "buttons" in group:
            group["buttons"] = [*filter(None, (change_button(name, one) for one in group["buttons"]))]


def change_button(name: str, button: dict[str, str]) -> dict[str, str] | None:
    """Return a button of the page's header as this project needs it, or None if the page is without it."""
    is_notebook = name.startswith("notebooks/")
    if button["text"] == "Colab":  # the notebook of the same version as the helpers that it installs there
        button["url"] = launch.colab_url(f"{name}.ipynb")
    elif button.get("label") == "source-edit-button" and not is_notebook:
        file = "TEACHING.md" if name == "teaching" else "tools/site.py"
        button["url"] = f"{launch.GITHUB}{launch.repository_name()}/edit/main/{file}"
    elif button.get("label") == "download-source-button" and not is_notebook:
        return None
    return button
