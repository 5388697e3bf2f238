"""Show a live widget, or a picture where the widget cannot be shown.

A reader may open a notebook in four states: as a fresh clone that was never run (JupyterLab does not trust
the notebook and shows no widget); after a run; saved, and opened again while its kernel is running; or after
a restart of the kernel (the widget's model is gone).

So that each state shows something, a cell has three outputs, of which only some are visible. The first is a
picture, the second is the picture's content as plain HTML, and the third is the widget. A style in the second
output hides the first two while the widget is live. Otherwise the style hides the widget's empty box.
"""

from __future__ import annotations

from typing import Any

LIVE = "wid-live"  # the CSS class of every live widget that replaces a picture
STATIC = "wid-static"

# JupyterLab gives an output whose model is gone the class jupyter-widgets and the words "model not found".
_STYLE = f"""<style>
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(.{STATIC}),
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(+ .jp-OutputArea-child .{STATIC}),
.jp-OutputArea:has(.{STATIC}):not(:has(.{LIVE})) > .jp-OutputArea-child:has(> .jupyter-widgets),
#output-area:has(.{LIVE}) :is(.{STATIC}, :has(+ * .{STATIC})) {{ display: none; }}
</style>"""


def static_output_html(static_html: str) -> str:
    """Return the HTML of a cell's second output: the style, then the content below the picture."""
    return f'{_STYLE}<div class="{STATIC}">{static_html}</div>'


def show_with_fallback(
    png: bytes | None, metadata: dict[str, Any], static_html: str, widget: Any, text: str
) -> None:
    """Show the three outputs of a cell: a picture, static HTML, and a live widget.

    Args:
        png: the picture, or None for a cell without one.
        metadata: the metadata of the first output by MIME type, such as the picture's width and its text
            alternative.
        static_html: the content below the picture for readers without a kernel, as escaped HTML.
        widget: the live widget, from ipywidgets or anywidget.
        text: the plain-text form, which must be the same in every run.
    """
    from IPython.display import display

    widget.add_class(LIVE)
    picture = {"image/png": png} if png else {}
    display({**picture, "text/plain": text}, metadata=metadata, raw=True)
    display({"text/html": static_output_html(static_html), "text/plain": " "}, raw=True)
    view: dict[str, Any] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"application/vnd.jupyter.widget-view+json": view, "text/html": " ", "text/plain": " "}, raw=True)
