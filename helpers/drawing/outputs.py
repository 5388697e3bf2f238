"""Show a live widget so that a notebook always has something to look at: three outputs, not all in sight.

A notebook is met in four states: a fresh clone that was never run (JupyterLab does not trust it and shows
no widget), run, saved and opened again with its kernel alive, saved and opened after a restart (the
widget's model is gone). The first output is a picture, the second what it says in plain HTML, the third
the widget. A style in the second hides the first two while the third lives, and hides the third's empty box
while it does not.
"""

from __future__ import annotations

from typing import Any

LIVE = "wid-live"  # every live widget that takes a picture's place carries this class
STATIC = "wid-static"

# JupyterLab gives an output whose model is gone the class jupyter-widgets and the words "model not found".
_STYLE = f"""<style>
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(.{STATIC}),
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(+ .jp-OutputArea-child .{STATIC}),
.jp-OutputArea:has(.{STATIC}):not(:has(.{LIVE})) > .jp-OutputArea-child:has(> .jupyter-widgets),
#output-area:has(.{LIVE}) :is(.{STATIC}, :has(+ * .{STATIC})) {{ display: none; }}
</style>"""


def static_output(static_html: str) -> str:
    """What stands under the picture, as it goes into a notebook's output."""
    return f'{_STYLE}<div class="{STATIC}">{static_html}</div>'


def show(png: bytes, about: dict[str, Any], static_html: str, widget: Any, text: str) -> None:
    """Emit the three outputs of a cell.

    Args:
        png: the picture.
        about: its metadata, by mime type: how wide it is shown, what it says.
        static_html: what readers without a kernel see under it; plain HTML, escaped by whoever made it.
        widget: the live form, of ipywidgets or anywidget.
        text: the plain text form, the same in every run.
    """
    from IPython.display import display

    widget.add_class(LIVE)
    display({"image/png": png, "text/plain": text}, metadata=about, raw=True)
    display({"text/html": static_output(static_html), "text/plain": " "}, raw=True)
    view: dict[str, Any] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"application/vnd.jupyter.widget-view+json": view, "text/html": " ", "text/plain": " "}, raw=True)
