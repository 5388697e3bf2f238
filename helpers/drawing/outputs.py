"""Show a live widget, or a picture where the widget cannot be shown.

A cell has three outputs, only some of which are visible. A reader may open a notebook in four states: a fresh
clone that was never run (JupyterLab does not trust it and shows no widget); after a run; saved and opened
again while its kernel is running; or after a restart (the widget's model is gone). The first output is a
picture, the second is its content in plain HTML, and the third is the widget. A style in the second output
hides the first two while the widget is live, and otherwise hides the widget's empty box.
"""

from __future__ import annotations

from typing import Any

LIVE = "wid-live"  # the class of every live widget that replaces a picture
STATIC = "wid-static"

# JupyterLab gives an output whose model is gone the class jupyter-widgets and the words "model not found".
_STYLE = f"""<style>
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(.{STATIC}),
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(+ .jp-OutputArea-child .{STATIC}),
.jp-OutputArea:has(.{STATIC}):not(:has(.{LIVE})) > .jp-OutputArea-child:has(> .jupyter-widgets),
#output-area:has(.{LIVE}) :is(.{STATIC}, :has(+ * .{STATIC})) {{ display: none; }}
</style>"""


def static_output_html(static_html: str) -> str:
    """Return the second output of a cell: the style, and the HTML below the picture."""
    return f'{_STYLE}<div class="{STATIC}">{static_html}</div>'


def show_with_fallback(
    png: bytes | None, metadata: dict[str, Any], static_html: str, widget: Any, text: str
) -> None:
    """Show the three outputs of a cell: a picture, static HTML, and a live widget.

    Args:
        png: the picture, or None.
        metadata: the picture's width and text alternative, by MIME type.
        static_html: the content below the picture for readers without a kernel, as escaped HTML.
        widget: the live widget, of ipywidgets or anywidget.
        text: the plain-text form, which must be the same in every run.
    """
    from IPython.display import display

    widget.add_class(LIVE)
    picture = {"image/png": png} if png else {}
    display({**picture, "text/plain": text}, metadata=metadata, raw=True)
    display({"text/html": static_output_html(static_html), "text/plain": " "}, raw=True)
    view: dict[str, Any] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"application/vnd.jupyter.widget-view+json": view, "text/html": " ", "text/plain": " "}, raw=True)
