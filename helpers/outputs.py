"""Show a live widget so that a notebook always has something to read: two outputs, one of them in sight.

A notebook is met in four states: a fresh clone that was never run (JupyterLab does not trust it and shows
no widget), run, saved and opened again with its kernel alive, saved and opened after a restart (the
widget's model is gone). The first output is a static form in plain HTML, the second the widget. A style
in the first hides it while the second lives, and hides the second's empty box while it does not.
"""

from __future__ import annotations

from typing import Any

LIVE = "wid-live"  # every live widget that comes with a static form carries this class
STATIC = "wid-static"

# JupyterLab gives an output whose model is gone the class jupyter-widgets and the words "model not found".
_STYLE = f"""<style>
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(.{STATIC}),
.jp-OutputArea:has(.{STATIC}):not(:has(.{LIVE})) > .jp-OutputArea-child:has(> .jupyter-widgets),
#output-area:has(.{LIVE}) .{STATIC} {{ display: none; }}
</style>"""


def static_output(static_html: str) -> str:
    """The static form as it goes into a notebook's output."""
    return f'{_STYLE}<div class="{STATIC}">{static_html}</div>'


def show(static_html: str, widget: Any, text: str) -> None:
    """Emit the two outputs of a cell.

    Args:
        static_html: what readers without a kernel see; plain HTML, escaped by whoever made it.
        widget: the live form, of ipywidgets or anywidget.
        text: the plain text form, the same in every run.
    """
    from IPython.display import display

    widget.add_class(LIVE)
    display({"text/html": static_output(static_html), "text/plain": text}, raw=True)
    view: dict[str, Any] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"application/vnd.jupyter.widget-view+json": view, "text/html": " ", "text/plain": " "}, raw=True)
